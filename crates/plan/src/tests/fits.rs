//! What fits into a memory.

use super::{at, budget, facts, planned};
use crate::{Plan, Precision, Question};
use kvlab_core::Bytes;

const GIB: u64 = 1 << 30;

fn eight(question: Question) -> Plan {
    planned(
        "llama-3.1-8b",
        &Question {
            weights: Some(Precision::Int4),
            ..question
        },
    )
}

/// The largest context takes all that is left and no more, for every cell.
#[test]
fn the_largest_context_is_the_last_that_fits() {
    let bytes = 8 * GIB;
    let plan = eight(budget(bytes));
    let rows = plan.memory.as_ref().unwrap().rows.unwrap();
    assert_eq!(rows.0, bytes - 8_030_261_248 / 2);
    // 128 KiB a token in f16, and no scales.
    assert_eq!(
        facts(&plan, "own", "f16").fit.unwrap().largest_context_tokens as u64,
        rows.0 / 131_072
    );
    for cache in &plan.caches {
        for cell in &cache.cells {
            let fit = cell.facts().unwrap().fit.unwrap();
            let tokens = fit.largest_context_tokens;
            assert!(tokens > 0, "{} {}", cache.variant, cell.codec);
            let used = |tokens| {
                let plan = eight(at(tokens));
                facts(&plan, &cache.variant, &cell.codec).bytes_at_context
            };
            assert!(used(tokens) <= rows, "{} {}", cache.variant, cell.codec);
            assert_eq!(fit.limited_by_model, tokens == 131_072);
            if !fit.limited_by_model {
                assert!(used(tokens + 1) > rows, "{} {}", cache.variant, cell.codec);
            }
        }
    }
}

#[test]
fn requests_share_what_is_left() {
    let plan = eight(budget(8 * GIB));
    let rows = plan.memory.as_ref().unwrap().rows.unwrap().0;
    assert_eq!(facts(&plan, "own", "f16").fit.unwrap().requests, rows / GIB);
    // 4.5 of 16 bits.
    assert_eq!(facts(&plan, "own", "int4").fit.unwrap().requests, rows / (GIB * 9 / 32));
    // Four requests have a quarter each.
    let four = eight(Question {
        requests: Some(4),
        ..budget(8 * GIB)
    });
    let fit = facts(&four, "own", "f16").fit.unwrap();
    assert_eq!(fit.largest_context_tokens as u64, rows / 4 / 131_072);
    assert_eq!(fit.requests, rows / GIB);
}

#[test]
fn a_reserve_is_kept() {
    let plan = eight(Question {
        reserve: Bytes(GIB),
        ..budget(8 * GIB)
    });
    let memory = plan.memory.unwrap();
    assert_eq!(memory.rows.unwrap().0, 7 * GIB - memory.weights.0);
}

/// What does not fit comes with the way out, and each way does fit.
#[test]
fn ways_out_fit() {
    let question = Question {
        budget: Some(Bytes(8 * GIB)),
        ..at(65_536)
    };
    let plan = eight(question.clone());
    let memory = plan.memory.as_ref().unwrap();
    assert!(!memory.fits);
    let rows = memory.rows.unwrap();
    // 65536 tokens are 8 GiB in f16 and 4.25 in int8 or fp8; 4.26 are left.
    assert!(
        memory.ways_out[0].starts_with("cache rows in fp8: 4.25 GiB"),
        "{:?}",
        memory.ways_out
    );
    assert!(facts(&plan, "own", "fp8").bytes_at_context <= rows);
    let tokens = rows.0 / 131_072;
    assert_eq!(memory.ways_out[1], format!("at most {tokens} tokens"));
    assert!(
        eight(Question {
            codec: Some("fp8".into()),
            ..question
        })
        .memory
        .unwrap()
        .fits
    );
}

#[test]
fn weights_that_do_not_fit_leave_nothing() {
    let plan = planned("llama-2-70b", &budget(24 * GIB));
    let memory = plan.memory.as_ref().unwrap();
    assert_eq!((memory.fits, memory.rows), (false, None));
    assert!(
        memory.ways_out.iter().any(|way| way.starts_with("weights in INT2")),
        "{:?}",
        memory.ways_out
    );
    assert_eq!(facts(&plan, "own", "f16").fit.unwrap().requests, 0);
    let tiny = planned("llama-2-70b", &budget(GIB)).memory.unwrap();
    assert!(tiny.ways_out[0].contains("nothing here fits"), "{:?}", tiny.ways_out);
    let text = crate::show::terminal(&plan, Some(100));
    assert!(text.contains("DOES NOT") && text.contains("leaves nothing"), "{text}");
}

/// A window does not grow: the model's own limit is what remains.
#[test]
fn the_model_limits_a_window() {
    let fit = facts(&planned("mistral-7b", &budget(64 * GIB)), "own", "f16")
        .fit
        .unwrap();
    assert!(fit.limited_by_model);
    assert_eq!(fit.largest_context_tokens, 32_768);
}
