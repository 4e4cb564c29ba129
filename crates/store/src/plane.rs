//! Planes: the tensors that rows live in.

use crate::layout::Run;
use burn::tensor::{DType, Int, Tensor, TensorData};
use kvlab_core::Bytes;

/// One tensor of the storage, `[slots, heads, width]`, or with an entry for each group of slots.
#[derive(Clone, Debug)]
pub enum Plane {
    /// Numbers, or scales.
    Float(Tensor<3>),
    /// Codes.
    Int(Tensor<3, Int>),
}

impl Plane {
    /// Slots, heads, width.
    pub fn dims(&self) -> [usize; 3] {
        match self {
            Self::Float(t) => t.dims(),
            Self::Int(t) => t.dims(),
        }
    }

    /// The format of its numbers.
    pub fn dtype(&self) -> DType {
        match self {
            Self::Float(t) => t.dtype(),
            Self::Int(t) => t.dtype(),
        }
    }

    /// Its numbers on the host, bit for bit.
    pub fn into_data(self) -> TensorData {
        match self {
            Self::Float(t) => t.into_data(),
            Self::Int(t) => t.into_data(),
        }
    }

    /// Numbers from the host as a plane of this kind, on the same device.
    pub fn like(&self, data: TensorData) -> Self {
        match self {
            Self::Float(t) => Self::Float(Tensor::from_data(data, (&t.device(), t.dtype()))),
            Self::Int(t) => Self::Int(Tensor::from_data(data, (&t.device(), t.dtype()))),
        }
    }

    /// Bytes of the whole tensor.
    pub fn bytes(&self) -> Bytes {
        let size = match self {
            Self::Float(t) => t.dtype().size(),
            Self::Int(t) => t.dtype().size(),
        };
        Bytes((self.dims().iter().product::<usize>() * size) as u64)
    }

    /// Whether a write goes into the buffer itself: nobody else holds it or a view of it.
    pub fn can_mut(&self) -> bool {
        match self {
            Self::Float(t) => t.can_mut(),
            Self::Int(t) => t.can_mut(),
        }
    }

    /// Rows `from..from + len`, as a view.
    pub fn rows(&self, from: usize, len: usize) -> Self {
        let [slots, heads, width] = self.dims();
        if len == slots {
            return self.clone();
        }
        let ranges = [from..from + len, 0..heads, 0..width];
        match self {
            Self::Float(t) => Self::Float(t.clone().slice(ranges)),
            Self::Int(t) => Self::Int(t.clone().slice(ranges)),
        }
    }

    /// Writes `rows` from slot `slot` on, in place.
    pub fn write(&mut self, slot: usize, rows: Self) {
        let [len, heads, width] = rows.dims();
        let ranges = [slot..slot + len, 0..heads, 0..width];
        match (self, rows) {
            (Self::Float(t), Self::Float(rows)) => t.inplace(|t| t.slice_assign(ranges, rows)),
            (Self::Int(t), Self::Int(rows)) => t.inplace(|t| t.slice_assign(ranges, rows)),
            // A codec encodes into the kinds of plane that it allocates: nothing else reaches this.
            (Self::Float(_), Self::Int(_)) | (Self::Int(_), Self::Float(_)) => {
                debug_assert!(false, "a codec mixed up its planes");
            }
        }
    }

    /// The rows of several planes of one kind, one after the other.
    fn join(parts: Vec<Self>) -> Option<Self> {
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        for part in parts {
            match part {
                Self::Float(t) => floats.push(t),
                Self::Int(t) => ints.push(t),
            }
        }
        if !floats.is_empty() {
            return Some(Self::Float(Tensor::cat(floats, 0)));
        }
        (!ints.is_empty()).then(|| Self::Int(Tensor::cat(ints, 0)))
    }

    /// The same rows in a buffer of their own, bit for bit, by way of the host. A view would keep the plane
    /// from being written in place.
    pub fn detached(self) -> Self {
        match self {
            Self::Float(t) => {
                let (device, dtype) = (t.device(), t.dtype());
                Self::Float(Tensor::from_data(t.into_data(), (&device, dtype)))
            }
            Self::Int(t) => {
                let (device, dtype) = (t.device(), t.dtype());
                Self::Int(Tensor::from_data(t.into_data(), (&device, dtype)))
            }
        }
    }
}

/// The planes of one layer.
///
/// The first plane of a codec has an entry for each row. Others may have one for each group of rows that it packs
/// together: then rows are cut, read and written in whole groups.
#[derive(Clone, Debug, Default)]
pub struct LayerStore {
    /// Planes of the keys.
    pub key: Vec<Plane>,
    /// Planes of the values; none where the value is a prefix of the key.
    pub value: Vec<Plane>,
}

/// Each plane of a codec with the rows of one of its entries.
pub(crate) fn strides(planes: &[Plane]) -> impl Iterator<Item = usize> {
    let rows = planes.first().map_or(0, |plane| plane.dims()[0]);
    planes
        .iter()
        .map(move |plane| rows / plane.dims()[0].max(1))
        .map(|n| n.max(1))
}

impl LayerStore {
    /// Every plane.
    pub fn planes(&self) -> impl Iterator<Item = &Plane> {
        self.key.iter().chain(&self.value)
    }

    /// Bytes of all planes.
    pub fn bytes(&self) -> Bytes {
        self.planes().map(Plane::bytes).sum()
    }

    /// Rows `from..from + len` of every plane, as views.
    pub fn rows(&self, from: usize, len: usize) -> Self {
        let cut = |planes: &[Plane]| {
            let planes = planes.iter().zip(strides(planes));
            planes.map(|(p, n)| p.rows(from / n, len / n)).collect()
        };
        Self {
            key: cut(&self.key),
            value: cut(&self.value),
        }
    }

    /// The rows of a run, as views.
    pub fn run(&self, run: Run) -> Self {
        self.rows(run.slot, run.len)
    }

    /// The rows of several parts, one after the other; a single part is left as it is.
    pub fn join(mut parts: Vec<Self>) -> Self {
        if parts.len() == 1 {
            return parts.remove(0);
        }
        let gather = |planes: fn(&Self) -> &Vec<Plane>| {
            let count = parts.first().map_or(0, |part| planes(part).len());
            let plane = |i: usize| Plane::join(parts.iter().map(|part| planes(part)[i].clone()).collect());
            (0..count).filter_map(plane).collect()
        };
        Self {
            key: gather(|part| &part.key),
            value: gather(|part| &part.value),
        }
    }

    /// Writes rows into every plane, in place.
    pub fn write(&mut self, slot: usize, rows: Self) {
        let write = |planes: &mut [Plane], rows: Vec<Plane>| {
            let strides: Vec<_> = strides(planes).collect();
            for ((plane, rows), n) in planes.iter_mut().zip(rows).zip(strides) {
                plane.write(slot / n, rows);
            }
        };
        write(&mut self.key, rows.key);
        write(&mut self.value, rows.value);
    }

    /// See [`Plane::detached`].
    pub fn detached(self) -> Self {
        let copy = |planes: Vec<Plane>| planes.into_iter().map(Plane::detached).collect();
        Self {
            key: copy(self.key),
            value: copy(self.value),
        }
    }
}
