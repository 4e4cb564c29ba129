//! Templates in the style of published ones, with the text that Hugging Face renders from them.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::text::{Tokenizer, toy_vocab};

fn conversation(turns: &[(&str, &str)]) -> Vec<Message> {
    let message = |&(role, content): &(&str, &str)| Message {
        role: role.to_owned(),
        content: content.to_owned(),
    };
    turns.iter().map(message).collect()
}

fn render(source: &str, turns: &[(&str, &str)], generate: bool) -> Result<String, TextError> {
    ChatTemplate::new(source, "<s>", "</s>")?.render(&conversation(turns), generate)
}

/// ChatML with a default system turn, one line per block: `trim_blocks` and `lstrip_blocks` decide the blanks.
const CHATML: &str = "{% for message in messages %}
    {% if loop.first and messages[0]['role'] != 'system' %}
        {{ '<|im_start|>system\nBe brief.<|im_end|>\n' }}
    {% endif %}
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{ '<|im_start|>assistant\n' }}
{% endif %}
";

#[test]
fn blocks_leave_no_blanks_behind() {
    // An expression keeps the indentation before it and the newline after it; a block loses both.
    let system = "        <|im_start|>system\nBe brief.<|im_end|>\n\n";
    let user = "<|im_start|>user\nHi<|im_end|>\n\n";
    assert_eq!(
        render(CHATML, &[("user", "Hi")], false).unwrap(),
        format!("{system}{user}")
    );
    assert_eq!(
        render(CHATML, &[("user", "Hi")], true).unwrap(),
        format!("{system}{user}<|im_start|>assistant\n\n")
    );
    assert_eq!(
        render(CHATML, &[("system", "S"), ("user", "Hi")], false).unwrap(),
        format!("<|im_start|>system\nS<|im_end|>\n\n{user}")
    );
}

/// Llama 2 in short: BOS, alternation, Python's string methods, namespaces, slices.
const LLAMA2: &str = "{%- if messages[0]['role'] == 'system' -%}
  {%- set system = '<<SYS>>' + messages[0]['content'].strip() + '<</SYS>>' -%}{%- set turns = messages[1:] -%}
{%- else -%}{%- set system = '' -%}{%- set turns = messages -%}{%- endif -%}
{%- set ns = namespace(count=0) -%}
{%- for message in turns -%}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('Conversation roles must alternate user/assistant!') }}
  {%- endif -%}
  {%- set ns.count = ns.count + 1 -%}
  {%- if message.role == 'user' -%}
    {{ bos_token + '[INST] ' + (system if ns.count == 1 else '') + message.content.strip() + ' [/INST]' }}
  {%- elif message.role.startswith('assist') -%}
    {{ ' ' + message['content'].replace('a', 'A').split('|')[-1] + ' ' + eos_token }}
  {%- endif -%}
{%- endfor -%}";

#[test]
fn python_methods_and_namespaces_work() {
    assert_eq!(
        render(
            LLAMA2,
            &[
                ("system", " S "),
                ("user", " a "),
                ("assistant", "x|banana"),
                ("user", "b")
            ],
            false
        )
        .unwrap(),
        "<s>[INST] <<SYS>>S<</SYS>>a [/INST] bAnAnA </s><s>[INST] b [/INST]"
    );
}

#[test]
fn a_refusal_is_the_templates_own_words() {
    let error = render(LLAMA2, &[("assistant", "x")], false).unwrap_err();
    assert_eq!(
        error,
        TextError::TemplateRefused {
            message: "Conversation roles must alternate user/assistant!".to_owned()
        }
    );
}

/// T89, from template to ids.
#[test]
fn a_template_with_bos_and_a_tokenizer_with_bos_make_one() {
    let prompt = render(LLAMA2, &[("user", "the cat")], true).unwrap();
    let mut vocab = toy_vocab::byte_level();
    for add_bos in [true, false] {
        vocab.add_bos = add_bos;
        let ids = Tokenizer::from_gguf(&vocab).unwrap().encode(&prompt, true).unwrap();
        assert_eq!(ids.iter().filter(|&&id| Some(id) == vocab.bos).count(), 1);
    }
}

#[test]
fn tools_are_none_and_the_date_is_fixed_or_absent() {
    let user = &[("user", "Hi")];
    assert_eq!(
        render(
            "{{ tools is none and documents is none and not date is defined }}",
            user,
            false
        )
        .unwrap(),
        "True"
    );
    let ask = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }}{% else %}26 Jul 2024{% endif %}";
    assert_eq!(render(ask, user, false).unwrap(), "26 Jul 2024");
    assert_eq!(render("{{ strftime_now('%Y') }}", user, false), Err(TextError::NoDate));
    let dated = |source| {
        ChatTemplate::new(source, "", "")
            .unwrap()
            .with_date(Date::new(2025, 1, 2).unwrap())
    };
    assert_eq!(dated(ask).render(&[], false).unwrap(), "02 Jan 2025");
    let error = dated("{{ strftime_now('%Q') }}")
        .render(&[], false)
        .unwrap_err()
        .to_string();
    assert!(error.contains("%Q"), "{error}");
}

#[test]
fn json_is_pythons() {
    let json = |source: &str| render(source, &[], false).unwrap();
    assert_eq!(
        json("{{ {'a': [1, 2.5, none, true], 'b': '<é\"&\\'>'} | tojson }}"),
        r#"{"a": [1, 2.5, null, true], "b": "<é\"&'>"}"#
    );
    assert_eq!(
        json("{{ {'a': [1], 'b': []} | tojson(indent=2) }}"),
        "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}"
    );
}

#[test]
fn an_error_names_the_line() {
    for source in [
        "a\n{% if %}",
        "a\n{{ messages[0].content.nope() }}",
        "a\n{{ missing.field }}",
    ] {
        let error = render(source, &[("user", "Hi")], false).unwrap_err();
        assert!(
            matches!(&error, TextError::Template { reason } if reason.contains(":2")),
            "{error}"
        );
    }
}

#[test]
fn a_folder_keeps_its_template_in_one_of_three_places() {
    let folder = std::env::temp_dir().join(format!("kvlab-chat-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(chat_template_in(&folder).unwrap(), None);
    let config = |text: &str| std::fs::write(folder.join("tokenizer_config.json"), text).unwrap();
    config(r#"{"chat_template": "one"}"#);
    assert_eq!(chat_template_in(&folder).unwrap().unwrap(), "one");
    config(r#"{"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "two"}]}"#);
    assert_eq!(chat_template_in(&folder).unwrap().unwrap(), "two");
    std::fs::write(folder.join("chat_template.jinja"), "three").unwrap();
    assert_eq!(chat_template_in(&folder).unwrap().unwrap(), "three");
    std::fs::remove_dir_all(&folder).unwrap();
}
