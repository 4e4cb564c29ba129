//! The `tojson` filter of chat templates: JSON as Python's `json.dumps` writes it.
//!
//! Models were trained on that spelling (`", "` and `": "` between things, no escapes for HTML, all of
//! Unicode as it is), and the engine's own filter has neither.

use std::io;

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// `value | tojson`, `value | tojson(indent=2)`.
pub(super) fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = options.get("indent")?;
    if options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "tojson(ensure_ascii=true) is not supported",
        ));
    }
    options.assert_all_used()?;
    let bytes = match indent {
        Some(indent) => write(
            value,
            PrettyFormatter::with_indent(" ".repeat(indent.min(16)).as_bytes()),
        ),
        None => write(value, PythonFormatter),
    };
    let refuse = |error: String| Error::new(ErrorKind::BadSerialization, error);
    String::from_utf8(bytes.map_err(|error| refuse(error.to_string()))?).map_err(|error| refuse(error.to_string()))
}

fn write(value: &Value, formatter: impl Formatter) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    value.serialize(&mut Serializer::with_formatter(&mut bytes, formatter))?;
    Ok(bytes)
}

/// A space after each comma and colon.
struct PythonFormatter;

impl Formatter for PythonFormatter {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}
