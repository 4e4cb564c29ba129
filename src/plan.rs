//! `kvlab plan`: what a model and its caches will cost, before anything runs.

use crate::failure::{Failure, Outcome};
use kvlab_config::Capacity;
use kvlab_core::Bytes;
use kvlab_plan::{Conversation, Device, Plan, PlanError, Precision, Prices, Question, Subject, show};

#[derive(clap::Args)]
pub struct Args {
    /// A model file (.toml), a Hugging Face folder or its config.json, a .gguf file, or hf:owner/name
    model: String,
    /// Override a key of the model file, or set one of `[cache]`, e.g. --set cache.variant=swa --set cache.window=1024
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Memory to fit into, e.g. "24 GiB"; left out, that of the device
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    budget: Option<String>,
    /// What of it is for neither weights nor rows, e.g. "1 GiB"
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    reserve: Option<String>,
    /// Tokens of a request, e.g. 8192 or 128K [default: the model file's capacity, else 8192 or as many as the model takes]
    #[arg(long, value_name = "TOKENS", value_parser = tokens)]
    context: Option<usize>,
    /// Requests at the same time [default: the model file's sequences, else 1]
    #[arg(long, value_name = "N")]
    requests: Option<usize>,
    /// Precision of the weights: fp32, fp16, bf16, int8, int4, int2 [default: as stored or declared, else 16 bits]
    #[arg(long, value_name = "PRECISION")]
    weights: Option<String>,
    /// Number format of the cache that must fit, a column of the table [default: the model file's, else f16]
    #[arg(long, value_name = "FORMAT")]
    codec: Option<String>,
    /// Add a number format of so many bits, which kvlab does not have
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    bits: Option<u32>,
    /// Predict times on a device: a preset, a file like configs/devices/h100-sxm.toml, or `this` to measure this machine
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Compare the bytes of a token with those of another model's own cache
    #[arg(long, value_name = "MODEL")]
    against: Option<String>,
    /// Price a conversation: `example`, or a file like configs/prices/example.toml
    #[arg(long, value_name = "NAME")]
    prices: Option<String>,
    /// Turns of the conversation
    #[arg(long, value_name = "N", default_value_t = 10, requires = "prices")]
    turns: u64,
    /// Tokens of its system prompt
    #[arg(long, value_name = "TOKENS", default_value_t = 2000, requires = "prices")]
    system: u64,
    /// Tokens of a question
    #[arg(long, value_name = "TOKENS", default_value_t = 100, requires = "prices")]
    user: u64,
    /// Tokens of an answer
    #[arg(long, value_name = "TOKENS", default_value_t = 300, requires = "prices")]
    reply: u64,
    /// Print JSON, for programs
    #[arg(long, group = "form")]
    json: bool,
    /// Print CSV: every variant, format and layer
    #[arg(long, group = "form")]
    csv: bool,
    /// Print Markdown
    #[arg(long, group = "form")]
    markdown: bool,
}

pub fn plan(args: &Args) -> Outcome {
    let plan = planned(args).map_err(failure)?;
    let text = if args.json {
        serde_json::to_string_pretty(&plan).map_err(|error| Failure::Run(error.to_string()))? + "\n"
    } else if args.csv {
        show::csv(&plan)
    } else if args.markdown {
        show::markdown(&plan)
    } else {
        show::terminal(&plan, crate::compare::terminal_width())
    };
    use std::io::Write;
    Ok(std::io::stdout().lock().write_all(text.as_bytes())?)
}

fn planned(args: &Args) -> Result<Plan, PlanError> {
    let subject = Subject::open(&args.model, &args.sets)?;
    let conversation = args.prices.as_ref().map(|name| {
        let Args {
            turns,
            system,
            user,
            reply,
            ..
        } = *args;
        Ok::<_, PlanError>((
            Conversation {
                turns,
                system,
                user,
                reply,
            },
            Prices::find(name)?,
        ))
    });
    let question = Question {
        context: args.context,
        requests: args.requests,
        weights: args.weights.as_deref().map(str::parse::<Precision>).transpose()?,
        codec: args.codec.clone(),
        bits: args.bits,
        budget: args.budget.as_deref().map(|text| bytes("budget", text)).transpose()?,
        reserve: args
            .reserve
            .as_deref()
            .map_or(Ok(Bytes(0)), |text| bytes("reserve", text))?,
        device: args.device.as_deref().map(Device::find).transpose()?,
        conversation: conversation.transpose()?,
    };
    let plan = kvlab_plan::plan(&subject, &question)?;
    match &args.against {
        Some(other) => plan.against(&Subject::open(other, &[])?),
        None => Ok(plan),
    }
}

fn failure(error: PlanError) -> Failure {
    match error {
        PlanError::Config(errors) => Failure::Config(errors),
        PlanError::Engine(error) => error.into(),
        error => Failure::Request(error.to_string()),
    }
}

fn bytes(what: &str, text: &str) -> Result<Bytes, PlanError> {
    match text.parse() {
        Ok(Capacity::Bytes(bytes)) => Ok(Bytes(bytes)),
        Ok(Capacity::Tokens(_)) => Err(PlanError::Request(format!(
            "--{what} {text:?} has no unit; write it like \"24 GiB\""
        ))),
        Err(error) => Err(PlanError::Request(format!("--{what}: {error}"))),
    }
}

/// `8192`, `128K` (131072), `1M`.
fn tokens(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        _ => (text, 1),
    };
    let n: Option<usize> = digits.parse().ok();
    n.and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| "write a number of tokens, such as 8192, 8K or 128K".to_owned())
}
