//! A codec as a config writes it: `"f16"`, or a table with its options.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::document::Value;
use crate::known::CodecInfo;
use crate::options::{Choice, Chosen, take_options};
use crate::section::{Field, Findings, Section};

/// A number format and its options. What is `None` was left out, and the codec chooses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(into = "Written", from = "Written")]
pub struct CodecSpec {
    /// A name of the registry.
    pub codec: String,
    /// Numbers that share one scale, at least 1.
    pub group: Option<usize>,
    /// Along what the numbers of a group lie.
    pub axis: Option<Axis>,
    /// Rotate rows (Hadamard) before they are quantised.
    pub rotate: Option<bool>,
    /// Options that the codec takes and that have no field here, unchecked.
    pub options: BTreeMap<String, toml::Value>,
}

/// Along what the numbers of a quantisation group lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Axis {
    /// A group is numbers of one token: one scale per token and group of channels.
    Token,
    /// A group is numbers of one channel: one scale per channel and group of tokens.
    Channel,
}

impl CodecSpec {
    /// A codec without options.
    #[must_use]
    pub fn named(codec: &str) -> Self {
        Self {
            codec: codec.to_owned(),
            group: None,
            axis: None,
            rotate: None,
            options: BTreeMap::new(),
        }
    }

    /// `f32`, which loses nothing: the codec when a file names none.
    #[must_use]
    pub fn exact() -> Self {
        Self::named("f32")
    }

    fn is_plain(&self) -> bool {
        *self == Self::named(&self.codec)
    }

    /// `None` when the codec is not known, which is then a finding.
    pub(super) fn read(field: &Field<'_>, known: &[CodecInfo], findings: &mut Findings) -> Option<Self> {
        if !matches!(field.node.value, Value::Table(_)) {
            return read_name(field, known, findings).map(Self::named);
        }
        let mut section = Section::new(&field.path, field.node, findings);
        let name = section.require("codec", "codec = \"int8\"", findings);
        let name = name.and_then(|name| read_name(&name, known, findings));
        let choice = Choice {
            word: "codec",
            path: section.path_of("codec"),
            chosen: name.map_or(Chosen::Unclear, Chosen::Name),
            all: known.iter().map(|codec| (codec.name, codec.options)).collect(),
        };
        let mut spec = Self::named(name.unwrap_or_default());
        for (option, field) in take_options(&mut section, &[choice], findings) {
            match option {
                "group" => spec.group = field.whole(1, findings),
                "axis" => {
                    spec.axis = field.choice(&[("token", Axis::Token), ("channel", Axis::Channel)], &[], findings)
                }
                "rotate" => spec.rotate = field.boolean(findings),
                _ => {
                    spec.options
                        .extend(field.node.to_toml().map(|value| (option.to_owned(), value)));
                }
            }
        }
        section.finish(findings);
        name.map(|_| spec)
    }
}

fn read_name<'t>(field: &Field<'t>, known: &[CodecInfo], findings: &mut Findings) -> Option<&'t str> {
    if !matches!(field.node.value, Value::Text(_)) {
        let message = format!(
            "`{}` must be the name of a codec or a table, and is {}",
            field.path,
            field.node.describe()
        );
        findings.add(
            field.at(),
            message,
            Some("for example \"f16\", or { codec = \"int8\", group = 32 }".to_owned()),
        );
        return None;
    }
    let text = field.text(findings)?;
    let names: Vec<(&str, ())> = known.iter().map(|codec| (codec.name, ())).collect();
    field.choice(&names, &[], findings).map(|()| text)
}

impl fmt::Display for CodecSpec {
    /// `f16`, or `int8(group=32,axis=token)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.codec)?;
        let mut options: Vec<String> = Vec::new();
        options.extend(self.group.map(|group| format!("group={group}")));
        options.extend(self.axis.map(|axis| format!("axis={axis}")));
        options.extend(self.rotate.map(|rotate| format!("rotate={rotate}")));
        options.extend(self.options.iter().map(|(key, value)| format!("{key}={value}")));
        if options.is_empty() {
            Ok(())
        } else {
            write!(f, "({})", options.join(","))
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Token => "token",
            Self::Channel => "channel",
        })
    }
}

/// The value as it stands in a file.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Name(String),
    Table {
        codec: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        group: Option<usize>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        axis: Option<Axis>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rotate: Option<bool>,
        #[serde(flatten)]
        options: BTreeMap<String, toml::Value>,
    },
}

impl From<CodecSpec> for Written {
    fn from(spec: CodecSpec) -> Self {
        if spec.is_plain() {
            return Self::Name(spec.codec);
        }
        let CodecSpec {
            codec,
            group,
            axis,
            rotate,
            options,
        } = spec;
        Self::Table {
            codec,
            group,
            axis,
            rotate,
            options,
        }
    }
}

impl From<Written> for CodecSpec {
    fn from(written: Written) -> Self {
        match written {
            Written::Name(codec) => Self::named(&codec),
            Written::Table {
                codec,
                group,
                axis,
                rotate,
                options,
            } => Self {
                codec,
                group,
                axis,
                rotate,
                options,
            },
        }
    }
}
