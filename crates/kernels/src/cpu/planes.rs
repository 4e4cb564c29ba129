//! Tensors of Burn's processor backend as they lie in memory. Nothing is copied, unless a view is not laid out row by
//! row, which new rows may be and stored ones never are.

#![allow(unsafe_code)] // Pointers into tensors, which are kept alive beside them.

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Tensor};
use kvlab_core::{CacheError, RowSpec, Value};
use kvlab_store::codec::{Code, Packing, Scales, hadamard};
use kvlab_store::{Part, Plane, Run};

/// `[slots, heads, width]` numbers.
#[derive(Clone)]
pub struct Raw {
    /// Keeps the memory.
    _tensor: FlexTensor,
    base: *const u8,
    /// Bytes from one slot to the next, and from one head to the next.
    strides: [usize; 2],
    pub dims: [usize; 3],
    pub dtype: DType,
    number: usize,
}

// SAFETY: the memory is read only, and the tensor that owns it is Send and Sync.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    /// A tensor of numbers.
    ///
    /// # Errors
    /// It is not on the processor.
    pub fn float(tensor: Tensor<3>) -> Result<Self, CacheError> {
        let dims = tensor.dims();
        Ok(Self::new(tensor.try_into_primitive::<Flex>().map_err(foreign)?, dims))
    }

    /// A plane of the storage.
    ///
    /// # Errors
    /// It is not on the processor.
    pub fn plane(plane: &Plane) -> Result<Self, CacheError> {
        let dims = plane.dims();
        let tensor = match plane {
            Plane::Float(t) => return Self::float(t.clone()),
            Plane::Int(t) => t.clone().try_into_primitive::<Flex>().map_err(foreign)?,
        };
        Ok(Self::new(tensor, dims))
    }

    fn new(tensor: FlexTensor, dims: [usize; 3]) -> Self {
        let rows_lie_in_order = |tensor: &FlexTensor| {
            let strides = tensor.layout().strides();
            strides.iter().all(|&stride| stride >= 0) && (strides[2] == 1 || dims[2] == 1)
        };
        let tensor = if rows_lie_in_order(&tensor) {
            tensor
        } else {
            tensor.to_contiguous()
        };
        let size = tensor.dtype().size();
        let (layout, bytes) = (tensor.layout(), tensor.bytes());
        let strides = [0, 1].map(|i| layout.strides()[i].unsigned_abs() * size);
        let first = layout.start_offset() * size;
        let empty = dims.contains(&0);
        let last = first + (dims[0].max(1) - 1) * strides[0] + (dims[1].max(1) - 1) * strides[1] + dims[2] * size;
        // Burn would have read beyond its own buffer.
        assert!(
            empty || last <= bytes.len(),
            "a tensor of {dims:?} lies outside of its memory"
        );
        Self {
            base: bytes[first.min(bytes.len())..].as_ptr(),
            strides,
            dims,
            dtype: tensor.dtype(),
            number: size,
            _tensor: tensor,
        }
    }

    /// The numbers of a head of a slot.
    #[inline]
    pub fn at(&self, slot: usize, head: usize) -> *const u8 {
        debug_assert!(slot < self.dims[0] && head < self.dims[1]);
        self.base.wrapping_add(slot * self.strides[0] + head * self.strides[1])
    }

    /// The numbers of a head of slot 0.
    #[inline]
    pub fn head(&self, head: usize) -> *const u8 {
        self.at(0, head)
    }

    /// Bytes from an address inside to the end of the last slot.
    #[inline]
    pub fn behind(&self, at: *const u8) -> usize {
        let end = self.base.addr()
            + (self.dims[0].max(1) - 1) * self.strides[0]
            + (self.dims[1].max(1) - 1) * self.strides[1]
            + self.width();
        end.saturating_sub(at.addr())
    }

    /// Bytes from one slot to the next.
    #[inline]
    pub fn slot_stride(&self) -> usize {
        self.strides[0]
    }

    /// Bytes of a number.
    #[inline]
    pub fn number(&self) -> usize {
        self.number
    }

    /// Bytes of a head of a slot.
    #[inline]
    pub fn width(&self) -> usize {
        self.dims[2] * self.number
    }

    /// Whether the heads of a slot follow each other without a gap.
    #[inline]
    pub fn heads_touch(&self) -> bool {
        self.strides[1] == self.width()
    }
}

fn foreign(error: impl std::fmt::Debug) -> CacheError {
    CacheError::Unsupported {
        what: "attention on the processor".into(),
        reason: format!("its rows are elsewhere: {error:?}"),
    }
}

/// The keys or the values of a part: how to read them.
pub struct Side {
    pub code: Code,
    pub codes: Raw,
    pub scales: Scales,
    pub scale: Option<Raw>,
    pub zero: Option<Raw>,
    /// Numbers of a vector.
    pub dim: usize,
    /// How many of them were rotated together.
    pub rotated: Option<usize>,
}

impl Side {
    fn new(packing: Packing, planes: &[Plane], dim: usize) -> Result<Self, CacheError> {
        let mut raw = planes.iter().map(Raw::plane);
        let mut next = || raw.next().transpose();
        let codes = next()?.ok_or_else(|| wrong("a plane of codes"))?;
        let (scale, zero) = (next()?, next()?);
        let side = Self {
            code: packing.code,
            codes,
            scales: packing.scales,
            scale,
            zero,
            dim,
            rotated: packing.rotate.then(|| hadamard::block(dim)),
        };
        side.check()?;
        Ok(side)
    }

    /// Numbers that share a scale in a vector.
    pub fn group(&self) -> usize {
        match self.scales {
            Scales::Along(Some(group)) => group,
            Scales::Along(None) | Scales::None => self.dim,
            Scales::Across(_) => 1,
        }
    }

    /// Scales of a head of a row.
    pub fn groups(&self) -> usize {
        self.dim / self.group().max(1)
    }

    /// Slots that have all they need: where rows share scales by the block, the last block may be missing.
    fn slots(&self) -> usize {
        match (self.scales, &self.scale) {
            (Scales::Across(rows), Some(scale)) => self.codes.dims[0].min(scale.dims[0] * rows),
            _ => self.codes.dims[0],
        }
    }

    /// Whether the planes are as large as their description says: the loops rely on it.
    fn check(&self) -> Result<(), CacheError> {
        let bytes = (self.dim * self.code.bits() as usize).div_ceil(8);
        if self.codes.width() != bytes {
            return Err(wrong("the width of its codes"));
        }
        let zero_points = matches!(self.code, Code::Int { zero_points: true, .. });
        let [slots, heads, _] = self.codes.dims;
        let expected = match self.scales {
            Scales::None => None,
            Scales::Along(_) => Some([slots, heads, self.groups()]),
            Scales::Across(rows) => Some([slots / rows, heads, self.dim]),
        };
        let fits = |raw: &Option<Raw>, dims| raw.as_ref().map(|raw| raw.dims) == dims;
        if !fits(&self.scale, expected) || !fits(&self.zero, expected.filter(|_| zero_points)) {
            return Err(wrong("the shape of its scales"));
        }
        Ok(())
    }
}

fn wrong(what: &str) -> CacheError {
    CacheError::Unsupported {
        what: "attention over packed rows".into(),
        reason: format!("a codec's description does not fit its planes: {what}"),
    }
}

/// The rows of a part.
pub struct Rows {
    pub key: Side,
    /// `None` where the value is the beginning of the key.
    pub value: Option<Side>,
}

impl Rows {
    /// `None` for a part without rows.
    ///
    /// # Errors
    /// A description that does not fit the planes.
    pub fn new(part: &Part<'_>, row: RowSpec) -> Result<Option<Self>, CacheError> {
        if part.runs.iter().all(Vec::is_empty) {
            return Ok(None);
        }
        let packing = |i: usize| part.codecs[i].packing().ok_or_else(|| wrong("there is none"));
        let key = Side::new(packing(0)?, &part.store.key, row.key)?;
        let value = match row.value {
            Value::Own(dim) => Some(Side::new(packing(1)?, &part.store.value, dim)?),
            Value::PrefixOfKey(_) => None,
        };
        let slots = std::iter::once(&key).chain(&value).map(Side::slots).min();
        let heads = std::iter::once(&key)
            .chain(&value)
            .all(|side| side.codes.dims[1] == row.heads);
        let inside = |run: &Run| Some(run.slot + run.len) <= slots;
        match heads && part.runs.iter().flatten().all(inside) {
            true => Ok(Some(Self { key, value })),
            false => Err(wrong("rows outside of them")),
        }
    }

    /// How many numbers of the values were rotated together.
    pub fn rotated_values(&self) -> Option<usize> {
        self.value.as_ref().unwrap_or(&self.key).rotated
    }
}
