//! The turns of a conversation, or the one continuation of a text.

use super::{Args, chat_tokens, cost, message, text_tokens};
use crate::failure::{Failure, Outcome};
use kvlab_engine::{Conversation, Engine, EngineError, Finish, Generation, Request};
use std::io::{IsTerminal, Write};

pub fn run(engine: &mut Engine, args: &Args, request: &Request) -> Outcome {
    let mut conversation = begin(engine, args)?;
    let mut out = std::io::stdout().lock();
    let mut last = None;
    let mut prompts = Prompts::of(args);
    while let Some(prompt) = prompts.next()? {
        let tokens = match args.chat {
            true => {
                conversation.messages.push(message("user", &prompt));
                chat_tokens(engine, &conversation.messages)?
            }
            false => text_tokens(engine, conversation.tokens(), &prompt)?,
        };
        let (done, answer) = speak(engine, &mut conversation, &tokens, request, &mut out)?;
        if args.chat {
            conversation.messages.push(message("assistant", &answer));
            cost::turn(&mut out, &done)?;
        } else {
            writeln!(out)?;
        }
        last = Some(done);
    }
    if let Some(done) = &last {
        cost::write(&mut out, engine, done)?;
    }
    if let Some(path) = &args.save {
        engine.save(&conversation, path)?;
        let tokens = conversation.tokens().len();
        writeln!(out, "saved          {}, {tokens} tokens", path.display())?;
    }
    Ok(engine.end(conversation)?)
}

/// Where the text begins: nowhere, with a system message, or in a file.
fn begin(engine: &mut Engine, args: &Args) -> Result<Conversation, Failure> {
    let Some(path) = &args.load else {
        let mut new = Conversation::new();
        new.messages
            .extend(args.system.as_deref().map(|text| message("system", text)));
        return Ok(new);
    };
    let mut saved = engine.load_conversation(path)?;
    match (args.chat, saved.messages.is_empty()) {
        (true, true) => Err(Failure::Request(format!(
            "{}: a text was saved there, and no conversation; leave out --chat",
            path.display()
        ))),
        (true, false) => Ok(saved),
        (false, _) => {
            // What is added is no message.
            saved.messages.clear();
            Ok(saved)
        }
    }
}

/// The model's answer, written as it comes.
fn speak(
    engine: &mut Engine,
    conversation: &mut Conversation,
    tokens: &[u32],
    request: &Request,
    out: &mut impl Write,
) -> Result<(Generation, String), Failure> {
    let mut stream = engine.tokenizer()?.stream_after(tokens);
    let mut answer = String::new();
    let mut written = Ok(());
    let done = engine.converse(conversation, tokens, request, &mut |event| {
        if let (Some(piece), Ok(())) = (stream.push(event.token), &written) {
            answer.push_str(&piece);
            written = out.write_all(piece.as_bytes()).and_then(|()| out.flush());
        }
    })?;
    written?;
    if done.finish == Finish::EmptyPrompt {
        return Err(EngineError::EmptyPrompt.into());
    }
    let rest = stream.finish();
    writeln!(out, "{rest}")?;
    answer.push_str(&rest);
    Ok((done, answer))
}

/// What the user says, one turn after the other.
enum Prompts<'a> {
    Given(std::slice::Iter<'a, String>),
    /// Go on from a saved text as it is.
    Nothing,
    Done,
    Lines {
        terminal: bool,
    },
}

impl<'a> Prompts<'a> {
    fn of(args: &'a Args) -> Self {
        match (args.prompts.is_empty(), args.chat) {
            (false, _) => Self::Given(args.prompts.iter()),
            (true, true) => Self::Lines {
                terminal: std::io::stdin().is_terminal(),
            },
            (true, false) => Self::Nothing,
        }
    }

    fn next(&mut self) -> Result<Option<String>, Failure> {
        match self {
            Self::Given(prompts) => Ok(prompts.next().cloned()),
            Self::Nothing => {
                *self = Self::Done;
                Ok(Some(String::new()))
            }
            Self::Done => Ok(None),
            Self::Lines { terminal } => line(*terminal),
        }
    }
}

/// The next line of standard input that has something in it; a sign asks for it on a terminal.
fn line(terminal: bool) -> Result<Option<String>, Failure> {
    let mut line = String::new();
    loop {
        if terminal {
            eprint!("> ");
        }
        line.clear();
        let read = std::io::stdin().read_line(&mut line);
        let read = read.map_err(|error| Failure::Request(format!("standard input: {error}")))?;
        let text = line.trim_end_matches(['\n', '\r']);
        match (read, text.trim().is_empty()) {
            (0, _) => return Ok(None),
            (_, true) => {}
            (_, false) => return Ok(Some(text.to_owned())),
        }
    }
}
