//! Bytes of rows and of weights.

use super::{at, facts, planned, subject};
use crate::{Precision, Question, plan};
use kvlab_core::Bytes;

/// Llama 3.1 8B: 32 layers, 8 KV heads of 128 (Grattafiori et al., 2024, arXiv 2407.21783, table 3). A key and a value of each in
/// f16: 2 x 32 x 8 x 128 x 2 bytes.
#[test]
fn llama_3_1_8b_in_f16() {
    let per_token = 2 * 32 * 8 * 128 * 2;
    assert_eq!(per_token, 131_072);
    for (tokens, bytes) in [(1, 131_072), (8 << 10, 1 << 30), (128 << 10, 16_u64 << 30)] {
        let plan = planned("llama-3.1-8b", &at(tokens));
        let own = facts(&plan, "own", "f16");
        assert_eq!(own.bytes_per_token, Bytes(per_token));
        assert_eq!(own.bytes_at_context, Bytes(bytes), "{tokens} tokens");
    }
    // Ten requests of 128K tokens: 160 GiB of rows.
    let ten = Question {
        requests: Some(10),
        budget: Some(Bytes(1 << 40)),
        ..at(128 << 10)
    };
    let memory = planned("llama-3.1-8b", &ten).memory.unwrap();
    assert_eq!(memory.wanted, Bytes(160 << 30));
}

/// T96, T97: every variant and format of Llama 3.1 8B, by the closed form written out.
#[test]
fn variants_and_formats_have_their_closed_forms() {
    let plan = planned("llama-3.1-8b", &at(8192));
    // Numbers of a row: keys and values of the stored heads; of a factorised cache a latent, and the keys of all heads, which all
    // rotate.
    let rows = [
        ("own", 2 * 8 * 128),
        ("mha", 2 * 32 * 128),
        ("mqa", 2 * 128),
        ("mla 512", 512 + 8 * 128),
    ];
    // Bits of a number: integers in groups of 32 that share a scale of 16 bits, int2 a zero point too; fp8 as well.
    let formats = [
        ("f32", 32.0),
        ("f16", 16.0),
        ("bf16", 16.0),
        ("fp8", 8.0 + 16.0 / 32.0),
        ("int8", 8.0 + 16.0 / 32.0),
        ("int4", 4.0 + 16.0 / 32.0),
        ("int2", 2.0 + 32.0 / 32.0),
    ];
    for (variant, numbers) in rows {
        for (codec, bits) in formats {
            let want = (32 * numbers) as f64 * bits / 8.0;
            let found = facts(&plan, variant, codec);
            assert_eq!(found.bytes_per_token.0 as f64, want, "{variant} {codec}");
            assert_eq!(found.bytes_at_context.0 as f64, 8192.0 * want, "{variant} {codec}");
        }
    }
    // A window keeps 4096 of the 8192.
    let window = facts(&plan, "swa 4096", "f16");
    assert_eq!(window.bytes_at_context, Bytes(4096 * 131_072));
}

/// What is lossy says so, and nothing else does.
#[test]
fn lossy_is_marked() {
    let plan = planned("llama-3.1-8b", &at(8192));
    let lossy: Vec<_> = plan
        .caches
        .iter()
        .filter(|cache| !cache.lossy.is_empty())
        .map(|c| c.variant.as_str())
        .collect();
    assert_eq!(lossy, ["mqa", "swa 4096", "mla 512"]);
    for (codec, exact) in [
        ("f32", true),
        ("f16", true),
        ("bf16", true),
        ("fp8", false),
        ("int8", false),
        ("int2", false),
    ] {
        assert_eq!(facts(&plan, "own", codec).lossy.is_empty(), exact, "{codec}");
    }
}

/// What a model cannot have is refused with the reason, and is a cell all the same.
#[test]
fn refused_is_said() {
    let plan = planned("deepseek-v2", &at(8192));
    let mqa = plan.caches.iter().find(|cache| cache.variant == "mqa").unwrap();
    for cell in &mqa.cells {
        assert!(
            matches!(&cell.outcome, crate::Outcome::Refused(reason) if reason.contains("latent")),
            "{cell:?}"
        );
    }
    assert_eq!(mqa.cells.len(), plan.caches[0].cells.len());
}

/// Layers that differ are counted on their own: Gemma 3 4B (Gemma Team, 2025, arXiv 2503.19786) has 29 layers with a window of
/// 1024 and 5 without, 4 KV heads of 256 each.
#[test]
fn layers_of_a_hybrid_add_up() {
    let plan = planned("gemma-3-4b", &at(8192));
    let own = facts(&plan, "own", "bf16");
    let row = 2 * 4 * 256 * 2;
    assert_eq!(own.bytes_per_token_by_layer, [Bytes(row); 34]);
    assert_eq!(own.bytes_at_context, Bytes((29 * 1024 + 5 * 8192) * row));
    let counts: Vec<_> = own
        .kinds
        .iter()
        .map(|(layers, what, _)| (*layers, what.as_str()))
        .collect();
    assert_eq!(counts, [(29, "window 1024"), (5, "causal")]);
    for cell in plan.caches.iter().flat_map(|cache| &cache.cells) {
        let Some(facts) = cell.facts() else { continue };
        let sum: Bytes = facts.bytes_per_token_by_layer.iter().copied().sum();
        assert_eq!(sum, facts.bytes_per_token, "{}", cell.codec);
    }
}

/// Llama 2 70B (Touvron et al., 2023, arXiv 2307.09288): with the 70 billion of its name, 280, 140, 70, 35 and 17.5 GB. It has
/// 68.98 billion parameters: 1.5 % less.
#[test]
fn weights_of_llama_2_70b() {
    let nominal = Precision::ALL.map(|precision| precision.bytes(70_000_000_000).0 as f64 / 1e9);
    assert_eq!(nominal, [280.0, 140.0, 70.0, 35.0, 17.5]);
    let plan = planned("llama-2-70b", &Question::default());
    // Embedding and head; in each of 80 layers q, o, k, v, three matrices of the feed-forward network, two norms; the last norm.
    let (hidden, inner, vocab) = (8192, 28_672, 32_000);
    let layer = 2 * hidden * hidden + 2 * hidden * 1024 + 3 * hidden * inner + 2 * hidden;
    let parameters: u64 = 2 * vocab * hidden + 80 * layer + hidden;
    assert_eq!(plan.model.parameters.total, parameters);
    assert_eq!(parameters, 68_976_648_192);
    for ((_, bytes), nominal) in plan.weights.precisions.iter().zip(nominal) {
        let exact = bytes.0 as f64 / 1e9;
        assert!(
            (exact / nominal - 1.0).abs() < 0.02 && exact < nominal,
            "{exact} {nominal}"
        );
    }
}

/// The token embedding that is the head too counts once: SmolLM2 135M has 134.5 million.
#[test]
fn weights_as_a_header_lists_them() {
    let folder = format!("{}/../../assets/bytes/gqa", env!("CARGO_MANIFEST_DIR"));
    let subject = crate::Subject::open(&folder, &[]).unwrap();
    let plan = plan(&subject, &Question::default()).unwrap();
    assert_eq!(plan.weights.multiplied(), Precision::Fp32);
    let stored = plan.weights.stored.unwrap();
    assert_eq!(stored.values, plan.model.parameters.total);
    assert_eq!(stored.formats, [("F32".to_owned(), Bytes(4 * stored.values))]);
    assert_eq!((plan.weights.counted, plan.weights.counted_bytes), (None, stored.bytes));
    assert_eq!(plan.model.name, "gqa");
}

/// Experts: DeepSeek-V2 has 236 billion parameters, of which a token uses 21 billion (arXiv 2405.04434, abstract); V3 has 671 and
/// 37 billion (arXiv 2412.19437, abstract).
#[test]
fn experts_that_are_not_chosen_take_memory_only() {
    let v3 = planned("deepseek-v3", &at(1)).model.parameters;
    let (total, active) = (v3.total as f64 / 1e9, v3.active as f64 / 1e9);
    assert!(
        (total - 671.0).abs() < 1.0 && (active - 37.0).abs() < 0.7,
        "{total} {active}"
    );
    let parameters = planned("deepseek-v2", &at(1)).model.parameters;
    let (total, active) = (parameters.total as f64 / 1e9, parameters.active as f64 / 1e9);
    assert!(
        (total - 236.0).abs() < 1.0 && (active - 21.0).abs() < 0.5,
        "{total} {active}"
    );
    // By hand: attention with low-rank queries, 160 and 2 experts of 1536, one dense layer, embedding and head, norms.
    let (h, v) = (5120, 102_400);
    let attention = h * 1536 + 1536 * 128 * 192 + h * 576 + 512 * 128 * 256 + 128 * 128 * h + 1536 + 512 + 2 * h;
    let rest: u64 = 60 * attention + 3 * h * 12_288 + 2 * v * h + h + 59 * 160 * h;
    let experts = |count: u64| rest + 59 * (count + 2) * 3 * h * 1536;
    assert_eq!((parameters.total, parameters.active), (experts(160), experts(6)));
    // One token reads its own experts; very many read them all.
    let of = Some((6, 160));
    let looked_up = parameters.looked_up as f64;
    let one = parameters.active as f64 - looked_up;
    assert!((parameters.read(1, of) / one - 1.0).abs() < 1e-9);
    let all = parameters.total as f64 - looked_up;
    assert!((parameters.read(10_000, of) / all - 1.0).abs() < 1e-6);
    let two = parameters.read(2, of) - parameters.active as f64 + looked_up;
    // The second token chooses 6 of 160, and meets one of the first's with a chance of 6 in 160.
    let each = (parameters.total - parameters.active) as f64 / 154.0;
    assert!((two / each - 6.0 * (1.0 - 6.0 / 160.0)).abs() < 1e-6, "{two} {each}");
}

/// DeepSeek-V2 against DeepSeek 67B (arXiv 2405.04434): its cache is 93.3 % smaller. MLA alone gives 82.2 %: 60 layers of 512 +
/// 64 numbers against 95 layers of 2 x 8 x 128 (DeepSeek 67B, arXiv 2401.02954); the rest are codes of 6 bits on average in place
/// of 16 (section 3.2.3 of the paper).
#[test]
fn deepseek_v2_against_deepseek_67b() {
    let question = Question {
        bits: Some(6),
        ..at(4096)
    };
    let v2 = planned("deepseek-v2", &question);
    let plan = v2.against(&subject("deepseek-67b", &[])).unwrap();
    let against = plan.against.unwrap();
    assert_eq!(against.bytes_per_token, Bytes(95 * 2 * 8 * 128 * 2));
    let percent = |codec: &str| {
        let found = against.percent_less.iter().find(|(name, _)| name == codec).unwrap();
        (found.1 * 10.0).round() / 10.0
    };
    assert_eq!(percent("f16"), 82.2);
    assert_eq!(percent("6 bits"), 93.3);
    let numbers = 60.0 * (512.0 + 64.0);
    assert_eq!(
        percent("f16"),
        (1000.0_f64 * (1.0 - numbers / (95.0 * 2048.0))).round() / 10.0
    );
}

/// What the model file asks for is a column of its own, unless there is one already.
#[test]
fn the_formats_of_a_file_are_a_column() {
    let sets = ["cache.key=int8", "cache.value=int4"];
    let mixed = plan(&subject("llama-3.1-8b", &sets), &at(8192)).unwrap();
    assert_eq!(mixed.chosen.codec, "int8/int4");
    // Half of the numbers at 8.5 bits, half at 4.5.
    let want = 32 * 8 * 128 * (17 + 9) / 16;
    assert_eq!(facts(&mixed, "own", "int8/int4").bytes_per_token, Bytes(want));
    let plain = plan(&subject("llama-3.1-8b", &[]), &at(8192)).unwrap();
    assert_eq!(plain.chosen.codec, "f16");
    assert_eq!(plain.caches[0].cells.len(), 7);
    let named = plan(
        &subject(
            "llama-3.1-8b",
            &["cache.variant=swa", "cache.window=100", "cache.sinks=4"],
        ),
        &at(8192),
    )
    .unwrap();
    assert_eq!(named.chosen.variant, "swa 100+4");
    assert_eq!(facts(&named, "swa 100+4", "f16").bytes_at_context, Bytes(104 * 131_072));
    // The default group is that of the column.
    let same = plan(
        &subject("llama-3.1-8b", &["cache.key=int8", "cache.value=int8"]),
        &at(8192),
    )
    .unwrap();
    assert_eq!((same.chosen.codec.as_str(), same.caches[0].cells.len()), ("int8", 7));
    let layered = subject(
        "llama-3.1-8b",
        &["cache.layer=[{ layers = [0], key = \"f32\", value = \"f32\" }]"],
    );
    let layered = plan(&layered, &at(8192)).unwrap();
    assert_eq!(layered.chosen.codec, "file");
    assert_eq!(
        facts(&layered, "own", "file").bytes_per_token,
        Bytes(131_072 + 131_072 / 32)
    );
    let sized = subject("llama-3.1-8b", &["cache.capacity=100 tokens", "cache.sequences=3"]);
    let sized = plan(&sized, &Question::default()).unwrap();
    assert_eq!((sized.context_tokens, sized.requests), (100, 3));
    let own = plan(&subject("llama-3.1-8b", &["cache.variant=gqa"]), &at(8192)).unwrap();
    assert_eq!((own.chosen.variant.as_str(), own.caches.len()), ("gqa", 5));
}
