//! Any chunking gives the same logits, in every latent mode: the model keeps nothing between steps.

use super::floats;
use super::memory::Memory;
use super::{assert_same, chunked, golden_spec, options, tokens, uncached, with_mode};
use crate::{Decoder, LatentMode, ModelError, Wanted};
use serde_json::json;

#[test]
fn chunks_change_nothing() {
    for name in [
        "gpt2_mha",
        "gemma3_mqa_hybrid",
        "mistral_swa",
        "deepseekv3_mla_q_yarn",
        "gptneox_mha_partial_rotary",
        "smollm3_gqa_nope",
        "deepseekv2_mla_moe",
        "gptoss_sinks",
    ] {
        let decoder = Decoder::random(golden_spec(name), 3, &options()).unwrap();
        let tokens = tokens(30, 131);
        let whole = uncached(&decoder, &tokens);
        for lengths in [&[1][..], &[7], &[13, 1], &[29, 1]] {
            assert_same(
                &whole,
                &chunked(&decoder, &tokens, lengths),
                1e-4,
                &format!("{name} {lengths:?}"),
            );
        }
    }
}

/// T77: absorbed and expanded are the same function, whatever was cached in which mode.
#[test]
fn latent_modes_agree_with_rows_from_before() {
    for name in ["deepseekv2_mla_noq", "deepseekv3_mla_q_yarn", "minicpm3_mla"] {
        let build = |mode| with_mode(Decoder::random(golden_spec(name), 5, &options()).unwrap(), mode);
        let tokens = tokens(24, 131);
        let absorbed = uncached(&build(LatentMode::Absorbed), &tokens);
        for lengths in [&[24][..], &[8, 1], &[5, 11, 8]] {
            let expanded = chunked(&build(LatentMode::Expanded), &tokens, lengths);
            assert_same(&absorbed, &expanded, 1e-4, &format!("{name} {lengths:?}"));
        }
    }
}

#[test]
fn wanted_rows_are_those_of_all() {
    let decoder = Decoder::random(golden_spec("llama_mha"), 1, &options()).unwrap();
    let tokens = tokens(9, 131);
    let all = uncached(&decoder, &tokens);
    let mut memory = Memory::new(decoder.spec());
    let some = decoder
        .forward(&tokens, &mut memory.begin(9), Wanted::Rows(&[8, 0, 4]))
        .unwrap();
    let want: Vec<f32> = [8, 0, 4]
        .iter()
        .flat_map(|&row| all[row * 131..(row + 1) * 131].to_vec())
        .collect();
    assert_same(&floats(some), &want, 1e-5, "rows 8, 0, 4");
    let none = decoder
        .forward(&tokens, &mut Memory::new(decoder.spec()).begin(9), Wanted::Rows(&[]))
        .unwrap();
    assert_eq!(none.dims(), [0, 131]);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let decoder = Decoder::random(golden_spec("llama_mha"), 1, &options()).unwrap();
    let run = |tokens: &[u32], positions: usize, wanted: Wanted<'_>| {
        decoder
            .forward(tokens, &mut Memory::new(decoder.spec()).begin(positions), wanted)
            .map(|_| ())
            .unwrap_err()
    };
    assert!(matches!(
        run(&[1, 131], 2, Wanted::All),
        ModelError::Token {
            token: 131,
            index: 1,
            vocab: 131
        }
    ));
    assert!(matches!(
        run(&[1, 2], 3, Wanted::All),
        ModelError::Length {
            tokens: 2,
            positions: 3
        }
    ));
    assert!(matches!(
        run(&[1], 1, Wanted::Rows(&[1])),
        ModelError::Wanted { row: 1, tokens: 1 }
    ));
}

/// The last position works, the one after it does not: learned and rotary alike.
#[test]
fn positions_end_where_the_config_says() {
    for (name, key) in [("llama_mha", "max_position_embeddings"), ("gpt2_mha", "n_positions")] {
        let spec = super::spec(name, &json!({ key: 16 })).unwrap();
        let decoder = Decoder::random(spec, 1, &options()).unwrap();
        let mut memory = Memory::new(decoder.spec());
        let mut step = memory.begin(16);
        decoder.forward(&tokens(16, 131), &mut step, Wanted::All).unwrap();
        step.keep();
        let refused = decoder.forward(&[1], &mut memory.begin(1), Wanted::All).unwrap_err();
        assert!(
            matches!(refused, ModelError::Position { position: 16, most: 16 }),
            "{name}: {refused}"
        );
    }
}
