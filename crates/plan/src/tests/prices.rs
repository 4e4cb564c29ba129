//! Conversations and their prices.

use crate::{Conversation, PerMillion, Prices, Tokens};

fn prices(input: f64, cached_read: f64, cache_write: f64, output: f64) -> Prices {
    Prices {
        schema: 1,
        name: "test".into(),
        date: String::new(),
        source: String::new(),
        currency: "USD".into(),
        per_million_tokens: PerMillion {
            input,
            cached_read,
            cache_write,
            output,
        },
    }
}

/// Three turns, counted by hand: prompts of 110, 140 and 170 tokens.
#[test]
fn three_turns_by_hand() {
    let talk = Conversation {
        turns: 3,
        system: 100,
        user: 10,
        reply: 20,
    };
    let output = 60;
    assert_eq!(
        talk.plain(),
        Tokens {
            input: 110 + 140 + 170,
            output,
            ..Tokens::default()
        }
    );
    let cached = Tokens {
        input: 0,
        cached_read: 110 + 140,
        cache_write: 110 + 30 + 30,
        output,
    };
    assert_eq!(talk.cached(), cached);
    let prices = prices(3.0, 0.3, 3.75, 15.0);
    let cost = prices.cost(talk);
    assert!((cost.plain_price - (420.0 * 3.0 + 60.0 * 15.0) / 1e6).abs() < 1e-12);
    assert!((cost.cached_price - (250.0 * 0.3 + 170.0 * 3.75 + 60.0 * 15.0) / 1e6).abs() < 1e-12);
}

/// One turn has nothing to read: caching costs what the write costs more.
#[test]
fn one_turn_only_pays_for_the_write() {
    let talk = Conversation {
        turns: 1,
        system: 1000,
        user: 10,
        reply: 5,
    };
    assert_eq!(talk.cached().cached_read, 0);
    assert_eq!(talk.cached().cache_write, talk.plain().input);
}

/// The least number of reads with which a write and those reads are cheaper than computing every time.
#[test]
fn a_write_pays_from_this_many_reuses_on() {
    for (input, read, write, pays) in [
        (3.0, 0.3, 3.75, Some(1)),
        // Anthropic documents 2 times the input for its cache of an hour, and reads at a tenth.
        (3.0, 0.3, 6.0, Some(2)),
        (1.0, 0.5, 1.5, Some(2)),
        (1.0, 0.5, 1.0, Some(1)),
        (1.0, 0.9, 2.0, Some(11)),
        (1.0, 1.0, 1.5, None),
        (1.0, 1.0, 0.5, Some(0)),
    ] {
        let prices = prices(input, read, write, 0.0);
        assert_eq!(prices.reuses_that_pay(), pays, "{input} {read} {write}");
        let Some(k) = pays.filter(|k| *k > 0) else { continue };
        let with = |k: f64| write + k * read;
        let without = |k: f64| (k + 1.0) * input;
        let k = k as f64;
        assert!(with(k) < without(k) && with(k - 1.0) >= without(k - 1.0) - 1e-9);
    }
}

/// A stored token that must be read more often than can be counted.
#[test]
fn a_write_that_pays_at_the_end_of_time() {
    let saved = 1.0 - (1.0 - f64::EPSILON / 2.0);
    assert!(saved > 0.0);
    let dear = prices(1.0, 1.0 - saved, 1e300, 1.0);
    assert_eq!(dear.reuses_that_pay(), Some(u64::MAX));
}
