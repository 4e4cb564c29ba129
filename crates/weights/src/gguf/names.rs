//! GGUF tensor names, translated to the Hugging Face names of the architecture.

/// `(GGUF, Hugging Face)` for tensors outside the layers, without `.weight` or `.bias`.
const WHOLE: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
];
const WHOLE_GPT2: &[(&str, &str)] = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
    ("output", "lm_head"),
];
/// The same for tensors of a layer, behind `blk.N.` and `model.layers.N.`.
const LAYER: &[(&str, &str)] = &[
    ("attn_norm", "input_layernorm"),
    ("attn_q", "self_attn.q_proj"),
    ("attn_k", "self_attn.k_proj"),
    ("attn_v", "self_attn.v_proj"),
    ("attn_output", "self_attn.o_proj"),
    ("attn_q_norm", "self_attn.q_norm"),
    ("attn_k_norm", "self_attn.k_norm"),
    ("ffn_gate", "mlp.gate_proj"),
    ("ffn_up", "mlp.up_proj"),
    ("ffn_down", "mlp.down_proj"),
];
const NORMS: &[(&str, &str)] = &[("ffn_norm", "post_attention_layernorm")];
const NORMS_GEMMA: &[(&str, &str)] = &[
    ("post_attention_norm", "post_attention_layernorm"),
    ("ffn_norm", "pre_feedforward_layernorm"),
    ("post_ffw_norm", "post_feedforward_layernorm"),
];
const LAYER_DEEPSEEK: &[(&str, &str)] = &[
    ("attn_q_a", "self_attn.q_a_proj"),
    ("attn_q_a_norm", "self_attn.q_a_layernorm"),
    ("attn_q_b", "self_attn.q_b_proj"),
    ("attn_kv_a_mqa", "self_attn.kv_a_proj_with_mqa"),
    ("attn_kv_a_norm", "self_attn.kv_a_layernorm"),
    ("attn_kv_b", "self_attn.kv_b_proj"),
    ("ffn_gate_inp", "mlp.gate"),
    ("ffn_gate_shexp", "mlp.shared_experts.gate_proj"),
    ("ffn_up_shexp", "mlp.shared_experts.up_proj"),
    ("ffn_down_shexp", "mlp.shared_experts.down_proj"),
];
const LAYER_GPT2: &[(&str, &str)] = &[
    ("attn_norm", "ln_1"),
    ("attn_qkv", "attn.c_attn"),
    ("attn_output", "attn.c_proj"),
    ("ffn_norm", "ln_2"),
    ("ffn_up", "mlp.c_fc"),
    ("ffn_down", "mlp.c_proj"),
];
/// Stacked experts: one GGUF tensor is one of these for every expert.
const EXPERTS: &[(&str, &str)] = &[
    ("ffn_gate_exps", "gate_proj"),
    ("ffn_up_exps", "up_proj"),
    ("ffn_down_exps", "down_proj"),
];

/// A name within a layer: `blk.N.part.weight`.
pub(super) struct InLayer<'a> {
    pub(super) layer: usize,
    /// Between the layer and the suffix: `attn_q`.
    pub(super) part: &'a str,
    /// `weight` or `bias`.
    pub(super) suffix: &'a str,
}

pub(super) fn in_layer(name: &str) -> Option<InLayer<'_>> {
    let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
    let (part, suffix) = rest.rsplit_once('.')?;
    Some(InLayer {
        layer: layer.parse().ok()?,
        part,
        suffix,
    })
}

/// The Hugging Face name, `None` if it is not known for that architecture.
pub(super) fn hugging_face(architecture: &str, name: &str) -> Option<String> {
    let gpt2 = architecture == "gpt2";
    let Some(InLayer { layer, part, suffix }) = in_layer(name) else {
        let (part, suffix) = name.rsplit_once('.')?;
        let whole = if gpt2 { WHOLE_GPT2 } else { WHOLE };
        return Some(format!("{}.{suffix}", find(&[whole], part)?));
    };
    if architecture == "deepseek2" && (part, suffix) == ("exp_probs_b", "bias") {
        return Some(format!("model.layers.{layer}.mlp.gate.e_score_correction_bias"));
    }
    let (prefix, tables): (_, &[&[(&str, &str)]]) = match architecture {
        "gpt2" => ("transformer.h", &[LAYER_GPT2]),
        "gemma2" | "gemma3" => ("model.layers", &[LAYER, NORMS_GEMMA]),
        "deepseek2" => ("model.layers", &[LAYER, NORMS, LAYER_DEEPSEEK]),
        _ => ("model.layers", &[LAYER, NORMS]),
    };
    Some(format!("{prefix}.{layer}.{}.{suffix}", find(tables, part)?))
}

/// The Hugging Face name of expert `expert` in a stacked tensor.
pub(super) fn expert(of: &InLayer<'_>, expert: usize) -> Option<String> {
    let part = find(&[EXPERTS], of.part)?;
    let (layer, suffix) = (of.layer, of.suffix);
    Some(format!("model.layers.{layer}.mlp.experts.{expert}.{part}.{suffix}"))
}

fn find(tables: &[&[(&'static str, &'static str)]], part: &str) -> Option<&'static str> {
    let mut all = tables.iter().flat_map(|table| table.iter());
    all.find(|(gguf, _)| *gguf == part).map(|(_, name)| *name)
}

/// The GGUF name of a tensor of the llama family, for the writer.
pub(super) fn llama_gguf(name: &str) -> Option<String> {
    let (stem, suffix) = name.rsplit_once('.')?;
    let back = |tables: &[&[(&'static str, &'static str)]], stem: &str| {
        let mut all = tables.iter().flat_map(|table| table.iter());
        all.find(|(_, name)| *name == stem).map(|(gguf, _)| *gguf)
    };
    match stem.strip_prefix("model.layers.") {
        None => Some(format!("{}.{suffix}", back(&[WHOLE], stem)?)),
        Some(rest) => {
            let (layer, part) = rest.split_once('.')?;
            let part = back(&[LAYER, NORMS], part)?;
            Some(format!("blk.{layer}.{part}.{suffix}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{hugging_face, in_layer, llama_gguf};

    #[test]
    fn a_norm_has_another_name_in_gemma() {
        let name = |architecture| hugging_face(architecture, "blk.3.ffn_norm.weight");
        let post = "model.layers.3.post_attention_layernorm.weight";
        let pre = "model.layers.3.pre_feedforward_layernorm.weight";
        assert_eq!(name("llama").as_deref(), Some(post));
        assert_eq!(name("gemma2").as_deref(), Some(pre));
    }

    #[test]
    fn unknown_names_are_not_guessed() {
        for name in [
            "rope_freqs.weight",
            "blk.x.attn_q.weight",
            "blk.0.attn_qkv.weight",
            "blk.0.attn_q_a.weight",
            "blk.0",
            "",
        ] {
            assert_eq!(hugging_face("llama", name), None, "{name}");
        }
        assert!(in_layer("blk.99999999999999999999999.attn_q.weight").is_none());
    }

    #[test]
    fn the_writer_uses_the_same_table() {
        for name in [
            "token_embd.weight",
            "output.weight",
            "blk.12.attn_k.bias",
            "blk.0.ffn_norm.weight",
        ] {
            let there = hugging_face("llama", name).and_then(|hf| llama_gguf(&hf));
            assert_eq!(there.as_deref(), Some(name));
        }
    }
}
