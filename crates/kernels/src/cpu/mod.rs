//! Attention on the processor, over rows as they are stored.
//!
//! Queries meet the rows tile by tile: a row is read once for all query heads that share it, is unpacked in the
//! processor's cache, and leaves a score and a weighted share in a running softmax. Threads share the queries, and where
//! those are few, the length of the sequence. What the loops need of an instruction set is a trait, `simd::Simd`; they
//! are compiled once for each set, and the best one that is there runs.
//!
//! # What it does not do
//! No tensor is copied or made, but for the output. What a codec does not describe as plain data
//! ([`Codec::packing`](kvlab_store::Codec::packing)) is left to other kernels, and so is every other device.

#![allow(unsafe_code)] // Calls of functions that need an instruction set, after a look whether it is there.

#[cfg(target_arch = "x86_64")]
mod bytes;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_bytes.rs"]
mod bytes;
mod inner;
#[cfg(target_arch = "x86_64")]
mod matrix;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_matrix.rs"]
mod matrix;
mod plan;
mod planes;
mod sight;
#[allow(missing_docs, clippy::missing_safety_doc)]
mod simd;
mod softmax;
mod task;
mod tile;
mod unpack;

use burn::tensor::{DType, Tensor, TensorData};
use kvlab_core::{Attended, CacheError, is_processor};
use kvlab_cpu::Isa;
use kvlab_store::{Computed, Input, Kernel, Problem};
use plan::Plan;
use planes::{Raw, Rows};
use std::cell::RefCell;
use std::sync::atomic::AtomicUsize;
use task::{Job, Results};

/// See the module.
pub struct Cpu {
    isa: Option<Isa>,
}

impl Cpu {
    /// With the best instructions that this machine has.
    pub const BEST: Self = Self { isa: None };

    /// With these instructions, for tests. Where the machine lacks them, it supports nothing.
    pub const fn with(isa: Isa) -> Self {
        Self { isa: Some(isa) }
    }

    fn isa(&self) -> Isa {
        self.isa.unwrap_or_else(Isa::best)
    }
}

thread_local! {
    /// What a thread computes in. It stays, because the next layer needs as much.
    static MEMORY: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl Kernel for Cpu {
    fn name(&self) -> &'static str {
        match self.isa() {
            Isa::Portable | Isa::Neon => "cpu",
            Isa::Avx2 => "cpu_avx2",
            Isa::Avx512 | Isa::Avx512Bf16 => "cpu_avx512",
            Isa::Amx => "cpu_amx",
        }
    }

    fn supports(&self, problem: &Problem) -> Result<(), String> {
        if !is_processor(&problem.device) {
            return Err("it works in the processor's memory".into());
        }
        if self.isa.is_some_and(|isa| !Isa::available().contains(&isa)) {
            return Err(format!("this processor has no {}", self.isa()));
        }
        let unknown = problem.packings.iter().flatten().any(Option::is_none);
        match unknown {
            true => Err("a codec does not say how its planes are to be read".into()),
            false => Ok(()),
        }
    }

    fn attend(&self, input: &Input<'_>) -> Result<Computed, CacheError> {
        let plan = Plan::new(input, kvlab_cpu::threads(), self.isa());
        let query = &input.query;
        let [tokens, query_heads, _] = query.q.dims();
        let mut out = vec![0.0; tokens * query_heads * plan.shape.value];
        let mut lse = vec![0.0; if query.lse { tokens * query_heads } else { 0 }];
        let mut partials = vec![0.0; plan.room.partials];
        let parts = input.parts.iter().map(|part| Rows::new(part, input.row));
        let job = Job {
            q: Raw::float(query.q.clone().cast(DType::F32))?,
            scale: query.scale,
            softcap: query.softcap,
            parts: parts.collect::<Result<_, _>>()?,
            sinks: query.sinks.clone().map(numbers),
            results: Results {
                out: out.as_mut_ptr(),
                lse: query.lse.then_some(lse.as_mut_ptr()),
                partials: partials.as_mut_ptr(),
            },
            next: AtomicUsize::new(0),
            plan,
        };
        let isa = self.isa();
        let work = |_| MEMORY.with_borrow_mut(|memory| dispatch(isa, &job, memory));
        match job.plan.threads {
            1 => work(0),
            _ => kvlab_cpu::run(&work),
        }
        let (device, shape) = (query.q.device(), [tokens, query_heads]);
        let out = TensorData::new(out, [tokens, query_heads, job.plan.shape.value]);
        let lse = query.lse.then(|| TensorData::new(lse, shape));
        Ok(Computed {
            attended: Attended {
                out: Tensor::<3>::from_data(out, (&device, DType::F32)).cast(query.q.dtype()),
                lse: lse.map(|lse| Tensor::from_data(lse, (&device, DType::F32))),
            },
            scratch: job.plan.bytes(),
        })
    }
}

fn numbers(t: Tensor<1>) -> Vec<f32> {
    t.into_data().iter::<f32>().collect()
}

/// Does tasks with these instructions, which the machine has: `supports` and `Isa::best` have asked it.
fn dispatch(isa: Isa, job: &Job, memory: &mut Vec<f32>) {
    // SAFETY: the machine has the instructions; the results were measured by the same plan.
    unsafe {
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx => task::work::<simd::avx512::Avx512>(job, memory),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => task::work::<simd::avx2::Avx2>(job, memory),
            _ => task::work::<simd::portable::Portable>(job, memory),
        }
    }
}
