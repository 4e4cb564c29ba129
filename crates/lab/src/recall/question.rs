//! Making a context, its question and the answer.
//!
//! The context is a passage of the workload's text in which facts are put. Both are tokenised on their own and joined as
//! tokens, so that a context has exactly the length that was asked for, and a depth is a share of it. A fact stands between
//! words where a word begins within 16 tokens before its place.

use super::Place;
use crate::passage::Passage;
use kvlab_config::{RecallKind, RecallStyle};
use kvlab_core::TokenId;
use kvlab_engine::text::Tokenizer;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// Characters that stand for keys and values; `assets/text/alice_95k.txt` has none of them.
const SYMBOLS: &str = "01345678#$%&+/<=>@\\^{|}~";

/// More facts than this have no names: two symbols each.
const MOST: usize = 12;

const CITIES: [&str; 16] = [
    "Lisbon", "Oslo", "Cairo", "Lima", "Kyoto", "Dublin", "Quebec", "Nairobi", "Vienna", "Prague", "Havana", "Seoul",
    "Athens", "Warsaw", "Geneva", "Jakarta",
];

const WORDS: [&str; 24] = [
    "amber", "anchor", "basket", "candle", "copper", "dragon", "falcon", "hammer", "island", "jacket", "ladder",
    "lemon", "marble", "orange", "pepper", "saddle", "silver", "timber", "tunnel", "velvet", "violin", "walnut",
    "winter", "zebra",
];

/// A context that ends with a question, and what ought to follow.
#[derive(Debug, PartialEq)]
pub(super) struct Question {
    /// Exactly as many tokens as were asked for.
    pub(super) prompt: Vec<TokenId>,
    /// At least one token.
    pub(super) answer: Vec<TokenId>,
}

/// What is said, and what is asked.
#[derive(Debug, PartialEq)]
struct Facts {
    /// In the order in which they must stand; for needles, the one that is asked for is the first.
    said: Vec<String>,
    asked: String,
    answer: String,
}

/// The question of a place. The seed and the number of the trial decide about the facts, and the trial about the passage: at
/// each depth the same is hidden in the same text.
///
/// # Errors
/// A context too short for its facts, a text too short for the contexts, and symbols that occur in the text.
pub(super) fn ask(place: &Place<'_>, seed: u64, passage: &Passage, tokenizer: &Tokenizer) -> Result<Question, String> {
    let task = place.task;
    if task.count == 0 || task.count > MOST {
        return Err(format!("it has {} facts; 1 to {MOST} have names", task.count));
    }
    let mut random = ChaCha8Rng::seed_from_u64(seed.wrapping_add(place.trial as u64));
    let facts = facts(task.kind, task.count, task.style, &mut random);
    let encode = |text: &str| tokenizer.encode(text, false).map_err(|error| error.to_string());
    let asked = encode(&facts.asked)?;
    // What a tokenizer makes of an answer may depend on what is before it.
    let whole = encode(&format!("{}{}", facts.asked, facts.answer))?;
    let answer = match whole.strip_prefix(asked.as_slice()) {
        Some(answer) if !answer.is_empty() => answer.to_vec(),
        _ => encode(&facts.answer)?,
    };
    let said: Vec<Vec<TokenId>> = facts.said.iter().map(|fact| encode(fact)).collect::<Result<_, _>>()?;
    let bos = passage.bos();
    let fixed = bos.iter().count() + said.iter().map(Vec::len).sum::<usize>() + asked.len();
    // At least a token of text between two facts, and before the question.
    let least = fixed + said.len() + 1;
    let hay = place.tokens.checked_sub(fixed).filter(|_| place.tokens >= least);
    let hay = hay.ok_or_else(|| format!("its facts and question need at least {least} tokens"))?;
    let hay = passage.plain(place.trial, hay)?;
    if task.style == RecallStyle::Symbols {
        refuse_symbols(&hay, tokenizer)?;
    }
    let places = places(task.kind, said.len(), place.depth_percent);
    let places = places.into_iter().map(|depth| between_words(&hay, depth, tokenizer));
    let mut placed: Vec<(usize, &Vec<TokenId>)> = places.zip(&said).collect();
    // Stable: facts of one place stay in their order.
    placed.sort_by_key(|(at, _)| *at);
    // Facts that touch would be read as one.
    let mut next = hay.len();
    for (at, _) in placed.iter_mut().rev() {
        *at = (*at).min(next.saturating_sub(1));
        next = *at;
    }
    let mut prompt: Vec<TokenId> = bos.into_iter().collect();
    let mut from = 0;
    for (at, fact) in placed {
        prompt.extend(&hay[from..at]);
        prompt.extend(fact);
        from = at;
    }
    prompt.extend(&hay[from..]);
    prompt.extend(asked);
    Ok(Question { prompt, answer })
}

fn facts(kind: RecallKind, count: usize, style: RecallStyle, random: &mut ChaCha8Rng) -> Facts {
    match (kind, style) {
        (RecallKind::Needle | RecallKind::Needles, RecallStyle::Words) => {
            let (keys, values) = (shuffled(&CITIES, random), shuffled(&WORDS, random));
            let fact = |(key, value): (&&str, &&str)| format!("\nThe secret word of {key} is {value}.\n");
            Facts {
                said: keys.iter().zip(&values).take(count).map(fact).collect(),
                asked: format!("\nThe secret word of {} is", keys[0]),
                answer: format!(" {}", values[0]),
            }
        }
        (RecallKind::Needle | RecallKind::Needles, RecallStyle::Symbols) => {
            let symbols = symbols(random);
            let pairs = symbols.chunks_exact(2).take(count);
            Facts {
                said: pairs.map(|pair| pair.concat()).collect(),
                asked: symbols[0].clone(),
                answer: symbols[1].clone(),
            }
        }
        (RecallKind::Variables, RecallStyle::Words) => {
            let names: Vec<String> = shuffled(&CITIES, random)
                .iter()
                .map(|city| city.to_uppercase())
                .collect();
            let words = shuffled(&WORDS, random);
            let first = format!("\nVAR {} = {}.\n", names[0], words[0]);
            let step = |pair: &[String]| format!("\nVAR {} = VAR {}.\n", pair[1], pair[0]);
            Facts {
                said: std::iter::once(first)
                    .chain(names.windows(2).take(count).map(step))
                    .collect(),
                asked: format!("\nThe value of VAR {} is", names[count]),
                answer: format!(" {}", words[0]),
            }
        }
        (RecallKind::Variables, RecallStyle::Symbols) => {
            let symbols = symbols(random);
            Facts {
                said: symbols.windows(2).take(count).map(|pair| pair.concat()).collect(),
                asked: symbols[0].clone(),
                answer: symbols[1..=count].concat(),
            }
        }
    }
}

fn shuffled<'a>(words: &[&'a str], random: &mut ChaCha8Rng) -> Vec<&'a str> {
    let mut words = words.to_vec();
    words.shuffle(random);
    words
}

fn symbols(random: &mut ChaCha8Rng) -> Vec<String> {
    let mut symbols: Vec<String> = SYMBOLS.chars().map(String::from).collect();
    symbols.shuffle(random);
    symbols
}

/// Where each fact stands, as a share of the text: the first at the depth that is asked for. Other needles are spread evenly;
/// the steps of a variable follow between the first and the end.
fn places(kind: RecallKind, count: usize, depth_percent: f64) -> Vec<f64> {
    let depth = depth_percent / 100.0;
    let others = (1..count).map(|i| match kind {
        RecallKind::Variables => depth + (1.0 - depth) * i as f64 / count as f64,
        RecallKind::Needle | RecallKind::Needles => (i as f64 - 0.5) / (count - 1) as f64,
    });
    std::iter::once(depth).chain(others).collect()
}

/// The token before which a fact at this share of the text stands: the beginning of a word, if one begins at most 16 tokens
/// before. At the end a token is left, so that a fact and the question do not touch.
fn between_words(hay: &[TokenId], share: f64, tokenizer: &Tokenizer) -> usize {
    const BACK: usize = 16;
    let exact = ((hay.len() as f64 * share).round() as usize).min(hay.len().saturating_sub(1));
    let begins = |&at: &usize| tokenizer.decode(&hay[at..=at]).starts_with(char::is_whitespace);
    if exact == 0 {
        return exact;
    }
    (exact.saturating_sub(BACK)..=exact).rev().find(begins).unwrap_or(exact)
}

fn refuse_symbols(hay: &[TokenId], tokenizer: &Tokenizer) -> Result<(), String> {
    let text = tokenizer.decode(hay);
    match text.chars().find(|c| SYMBOLS.contains(*c)) {
        Some(symbol) => Err(format!(
            "the text has the symbol `{symbol}`, which must occur in the facts only; choose another text, or style = \"words\""
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use kvlab_config::RecallTask;

    fn task(kind: RecallKind, count: usize, style: RecallStyle) -> RecallTask {
        RecallTask {
            kind,
            count,
            style,
            lengths: vec![],
            depths: vec![],
            trials: 1,
        }
    }

    fn passage(bos: Option<TokenId>) -> Passage {
        Passage::of(bos, "ab cd ef gh ".repeat(200).bytes().map(TokenId::from).collect())
    }

    fn asked(task: &RecallTask, depth_percent: f64, trial: usize) -> Question {
        let place = Place {
            task,
            tokens: 400,
            depth_percent,
            trial,
        };
        ask(&place, 3, &passage(Some(1)), &Tokenizer::bytes()).unwrap()
    }

    fn text(tokens: &[TokenId]) -> String {
        Tokenizer::bytes().decode(tokens)
    }

    #[test]
    fn a_context_has_its_length_and_the_fact_its_depth() {
        let task = task(RecallKind::Needle, 1, RecallStyle::Words);
        for (depth, low, high) in [(0.0, 0, 0), (50.0, 150, 175), (100.0, 315, 345)] {
            let question = asked(&task, depth, 0);
            assert_eq!((question.prompt.len(), question.prompt[0]), (400, 1));
            let prompt = text(&question.prompt[1..]);
            let answer = text(&question.answer);
            let fact = prompt.find("\nThe secret word of").unwrap();
            assert!((low..=high).contains(&fact), "{depth} %: {fact}");
            assert!(prompt[fact..].contains(&format!(" is{answer}.\n")), "{prompt}");
            assert!(prompt.ends_with(" is") && answer.starts_with(' '), "{prompt}");
            // The key of the question is that of the fact.
            let key = |from: usize| prompt[from..].split(' ').nth(4).unwrap().to_owned();
            assert_eq!(key(fact), key(prompt.rfind("\nThe secret").unwrap()));
            let before = prompt[..fact].chars().next_back();
            assert!(before.is_none_or(char::is_alphabetic), "between words: {prompt}");
        }
    }

    #[test]
    fn the_same_is_hidden_at_every_depth_and_another_in_each_trial() {
        let task = task(RecallKind::Needles, 3, RecallStyle::Symbols);
        let (a, b, c) = (asked(&task, 0.0, 0), asked(&task, 75.0, 0), asked(&task, 0.0, 1));
        assert_eq!(a.answer, b.answer);
        assert_ne!(a.answer, c.answer);
        let mut sorted = [a.prompt.clone(), b.prompt];
        sorted.iter_mut().for_each(|tokens| tokens.sort_unstable());
        assert_eq!(sorted[0], sorted[1]);
        assert_eq!(a, asked(&task, 0.0, 0));
        let said = text(&a.prompt[1..]).chars().filter(|c| SYMBOLS.contains(*c)).count();
        assert_eq!(said, 3 * 2 + 1, "three pairs and the question");
    }

    #[test]
    fn variables_are_set_one_after_the_other() {
        let words = asked(&task(RecallKind::Variables, 2, RecallStyle::Words), 10.0, 0);
        let prompt = text(&words.prompt[1..]);
        let lines: Vec<&str> = prompt.lines().filter(|line| line.starts_with("VAR")).collect();
        let name = |line: &str, place: usize| line.trim_end_matches('.').split(' ').nth(place).unwrap().to_owned();
        assert_eq!(lines.len(), 3, "{prompt}");
        assert_eq!(format!(" {}", name(lines[0], 3)), text(&words.answer));
        assert_eq!(name(lines[0], 1), name(lines[1], 4));
        assert_eq!(name(lines[1], 1), name(lines[2], 4));
        assert!(prompt.ends_with(&format!("VAR {} is", name(lines[2], 1))), "{prompt}");

        let symbols = asked(&task(RecallKind::Variables, 3, RecallStyle::Symbols), 10.0, 0);
        let (prompt, answer) = (text(&symbols.prompt[1..]), text(&symbols.answer));
        let chain = format!("{}{answer}", &prompt[prompt.len() - 1..]);
        let places: Vec<usize> = (0..3).map(|i| prompt.find(&chain[i..i + 2]).unwrap()).collect();
        assert!(places.is_sorted() && answer.len() == 3, "{prompt}");

        let end = asked(&task(RecallKind::Variables, 3, RecallStyle::Symbols), 100.0, 0);
        let prompt = text(&end.prompt[1..]);
        let symbols: Vec<bool> = prompt.chars().map(|c| SYMBOLS.contains(c)).collect();
        let touching = symbols.windows(3).any(|three| three.iter().all(|&is| is));
        assert!(!touching, "facts and question are apart: {prompt}");
    }

    #[test]
    fn what_cannot_be_asked_is_refused() {
        let task = task(RecallKind::Needle, 1, RecallStyle::Symbols);
        let place = |tokens| Place {
            task: &task,
            tokens,
            depth_percent: 50.0,
            trial: 0,
        };
        let ask = |place: &Place<'_>, passage: &Passage| super::ask(place, 0, passage, &Tokenizer::bytes());
        let error = ask(&place(4), &passage(None)).unwrap_err();
        assert!(error.contains("at least 5 tokens"), "{error}");
        assert_eq!(ask(&place(5), &passage(None)).unwrap().prompt.len(), 5);
        let error = ask(&place(5000), &passage(None)).unwrap_err();
        assert!(error.contains("use a longer text"), "{error}");
        let digits = Passage::of(None, "1 2 3 4 ".repeat(9).bytes().map(TokenId::from).collect());
        let error = ask(&place(30), &digits).unwrap_err();
        assert!(error.contains("the symbol `1`") && error.contains("words"), "{error}");
    }
}
