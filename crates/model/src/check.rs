//! What is refused before a forward pass begins: Burn panics on an index out of range, or reads something else.

use crate::{Decoder, ModelError, Wanted};
use burn::tensor::{Device, Int, Tensor};
use kvlab_core::TokenId;

impl Decoder {
    pub(crate) fn check(
        &self,
        tokens: &[TokenId],
        positions: &Tensor<1, Int>,
        wanted: Wanted<'_>,
    ) -> Result<(), ModelError> {
        let (count, vocab) = (tokens.len(), self.spec.vocab);
        if positions.dims() != [count] || count == 0 {
            return Err(ModelError::Length {
                tokens: count,
                positions: positions.dims()[0],
            });
        }
        if let Some(index) = tokens.iter().position(|&token| token as usize >= vocab) {
            return Err(ModelError::Token {
                token: tokens[index],
                index,
                vocab,
            });
        }
        if let Wanted::Rows(rows) = wanted
            && let Some(&row) = rows.iter().find(|&&row| row >= count)
        {
            return Err(ModelError::Wanted { row, tokens: count });
        }
        // On the CPU the positions are in memory. Elsewhere reading them would wait for the device in every step:
        // there the caller, who knows the lengths, asks `check_position`.
        if positions.device() == Device::flex() {
            self.check_positions(positions)?;
        }
        Ok(())
    }

    fn check_positions(&self, positions: &Tensor<1, Int>) -> Result<(), ModelError> {
        let data = positions.try_to_data().map_err(|e| ModelError::Device(e.to_string()))?;
        let last = data.iter::<i64>().max().unwrap_or(0);
        self.check_position(usize::try_from(last).unwrap_or(usize::MAX))
    }

    /// Whether the model has a place for a token at `position`, by `max_position_embeddings`. A forward pass checks
    /// it on the CPU; on other devices whoever knows the lengths of the sequences has to.
    ///
    /// # Errors
    /// [`ModelError::Position`].
    pub fn check_position(&self, position: usize) -> Result<(), ModelError> {
        let most = self.spec.max_positions;
        if position >= most {
            return Err(ModelError::Position { position, most });
        }
        Ok(())
    }
}
