//! Chat templates: messages to a prompt, as Hugging Face's `apply_chat_template` renders them.

use std::path::Path;

use minijinja::{Environment, Error, ErrorKind, context};
use serde::{Deserialize, Serialize};

use super::date::Date;
use super::error::TextError;
use super::hugging_face::sibling_json;
use super::python_json::tojson;

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// `system`, `user`, `assistant`, or what else the template knows.
    pub role: String,
    /// The text.
    pub content: String,
}

/// A Jinja template that makes a prompt.
///
/// The text of the messages goes into the prompt as it is: where a message spells a special token, encoding
/// the prompt with special tokens parses it, as every engine does.
#[derive(Debug)]
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

const NAME: &str = "chat template";
const STRFTIME: &str = "strftime_now";

impl ChatTemplate {
    /// Parses a template. `bos` and `eos` are the texts of `bos_token` and `eos_token`; empty where the model has none.
    ///
    /// # Errors
    /// [`TextError::Template`] with the line that does not parse.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TextError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message.clone()).with_source(Raised(message)))
        });
        environment.add_filter("tojson", tojson);
        environment
            .add_template_owned(NAME, source.to_owned())
            .map_err(|error| template_error(&error))?;
        Ok(ChatTemplate {
            environment,
            bos: bos.to_owned(),
            eos: eos.to_owned(),
        })
    }

    /// Lets the template ask for the date (`strftime_now`), and answers with this one at midnight. Without it
    /// the function is not defined: a template that checks takes its own default, and one that does not is an error.
    #[must_use]
    pub fn with_date(mut self, date: Date) -> Self {
        self.environment.add_function(STRFTIME, move |format: String| {
            date.strftime(&format).ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidOperation,
                    format!("strftime_now({format:?}) has a directive that is not supported"),
                )
            })
        });
        self
    }

    /// The prompt. With `add_generation_prompt` it ends where the assistant's answer begins.
    ///
    /// # Errors
    /// [`TextError::TemplateRefused`] where the template does not like the messages, [`TextError::NoDate`], or
    /// [`TextError::Template`] with the line that failed.
    pub fn render(&self, messages: &[Message], add_generation_prompt: bool) -> Result<String, TextError> {
        let template = self
            .environment
            .get_template(NAME)
            .map_err(|error| template_error(&error))?;
        // Hugging Face passes tools and documents as None: templates ask `is not none`.
        let context = context! {
            messages,
            add_generation_prompt,
            bos_token => self.bos,
            eos_token => self.eos,
            tools => (),
            documents => (),
        };
        template.render(context).map_err(|error| template_error(&error))
    }
}

/// The template of a Hugging Face folder: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`
/// (of several the one named `default`). None where it has none.
///
/// # Errors
/// A file that is there and cannot be read.
pub fn chat_template_in(folder: &Path) -> Result<Option<String>, TextError> {
    let path = folder.join("chat_template.jinja");
    match std::fs::read_to_string(&path) {
        Ok(source) => return Ok(Some(source)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => {
            return Err(TextError::File {
                path,
                reason: error.to_string(),
            });
        }
    }
    let config = sibling_json(&path, "tokenizer_config.json")?;
    let named = config["chat_template"].as_array().into_iter().flatten();
    let default = named
        .filter(|entry| entry["name"] == "default")
        .find_map(|entry| entry["template"].as_str());
    Ok(config["chat_template"].as_str().or(default).map(str::to_owned))
}

/// What `raise_exception` was called with, carried through the engine's error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn template_error(error: &Error) -> TextError {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(inner) = source {
        if let Some(Raised(message)) = inner.downcast_ref::<Raised>() {
            return TextError::TemplateRefused {
                message: message.clone(),
            };
        }
        source = inner.source();
    }
    let reason = error.to_string();
    if error.kind() == ErrorKind::UnknownFunction && reason.contains(STRFTIME) {
        return TextError::NoDate;
    }
    TextError::Template { reason }
}

#[cfg(test)]
mod tests;
