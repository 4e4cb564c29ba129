//! `kvlab logits`: teacher-forced logits of given token ids.

use crate::failure::{Failure, Outcome};
use crate::progress::Bar;
use crate::{Model, load};
use safetensors::tensor::{Dtype, TensorView};
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: Model,
    /// A JSON list of token ids
    #[arg(long, value_name = "IDS.json")]
    ids: PathBuf,
    /// The safetensors file to write: `logits`, [tokens, vocab], f32
    #[arg(long, value_name = "L.safetensors")]
    out: PathBuf,
    /// Tokens fed to the cache in one step; 0: all at once, 1: token by token
    #[arg(long, default_value_t = 0)]
    chunk: usize,
}

pub fn logits(args: &Args) -> Outcome {
    let ids = read_ids(&args.ids)?;
    let config = load::config(&args.model)?;
    let mut engine = load::engine(&config)?;
    let vocab = engine.model().vocab();
    let mut bytes = Vec::with_capacity(ids.len() * vocab * 4);
    let bar = Bar::new();
    engine.score(&ids, args.chunk, &mut |place, row| {
        bytes.extend(row.iter().flat_map(|x| x.to_le_bytes()));
        bar.at("scoring", place + 1, ids.len());
    })?;
    let broken = |e: safetensors::SafeTensorError| Failure::Run(format!("{}: {e}", args.out.display()));
    let view = TensorView::new(Dtype::F32, vec![ids.len(), vocab], &bytes).map_err(broken)?;
    safetensors::serialize_to_file([("logits", view)], None, &args.out).map_err(broken)?;
    drop(bar);
    println!("{}: logits [{}, {vocab}] f32", args.out.display(), ids.len());
    Ok(())
}

fn read_ids(path: &std::path::Path) -> Result<Vec<u32>, Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| Failure::Request(format!("{name}: {e}")))?;
    let ids: Result<Vec<u32>, _> = serde_json::from_str(&text);
    ids.map_err(|e| {
        Failure::Request(format!(
            "{name}: a JSON list of token ids is needed, such as [1, 2, 3]: {e}"
        ))
    })
}
