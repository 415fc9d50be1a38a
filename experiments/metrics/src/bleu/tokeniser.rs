//! How text is cut into words.

use std::ops::RangeInclusive;
use std::sync::LazyLock;

use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::{is_space, words};

/// How text is cut into the words that BLEU counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Tokeniser {
    /// The rules of NIST's `mteval-v13a`, for untokenised text in Western languages; the default, and what WMT reports.
    #[default]
    #[serde(rename = "13a")]
    Mteval13a,
    /// The rules of `mteval-v14` in its international mode: cuts at every punctuation mark and symbol of Unicode except inside numbers.
    #[serde(rename = "intl")]
    International,
    /// Each Chinese character is a word, and what stands between them is cut by the rules of `mteval-v13a` for punctuation. Entities (`&quot;`) and `<skipped>` stay.
    #[serde(rename = "zh")]
    Chinese,
    /// Each character that is not white space is a word.
    #[serde(rename = "char")]
    Character,
    /// Cuts at white space only, for text that is tokenised already. Scores depend on that tokenisation and compare with nothing else.
    #[serde(rename = "none")]
    Whitespace,
}

/// Regular expressions and their replacements, to be applied one after the other.
type Rewrites = Vec<(Regex, &'static str)>;

fn rewrites<const N: usize>(rules: [(&str, &'static str); N]) -> Rewrites {
    rules.into_iter().map(|(pattern, replacement)| (Regex::new(pattern).expect("the pattern is a constant"), replacement)).collect()
}

static MTEVAL_13A: LazyLock<Rewrites> = LazyLock::new(|| {
    rewrites([
        // All ASCII punctuation but the apostrophe, comma, hyphen and full stop.
        (r"[{-~\[-` -&(-+:-@/]", " ${0} "),
        (r"([^0-9])([.,])", "${1} ${2} "),
        (r"([.,])([^0-9])", " ${1} ${2}"),
        (r"([0-9])(-)", "${1} ${2} "),
    ])
});

static INTERNATIONAL: LazyLock<Rewrites> =
    LazyLock::new(|| rewrites([(r"(\P{N})(\p{P})", "${1} ${2} "), (r"(\p{P})(\P{N})", " ${1} ${2}"), (r"\p{S}", " ${0} ")]));

/// What sacreBLEU regards as Chinese characters (Huang's script for CWMT). Its ranges of five hexadecimal digits are read by Python as ones of four, so that
/// the second one covers punctuation such as `“` and `…`, symbols and the radicals, and no ideograph beyond U+FFFF is in any.
const CHINESE: [RangeInclusive<char>; 13] = [
    '\u{2001}'..='\u{2a6d}',
    '\u{2e80}'..='\u{2fdf}',
    '\u{2ff0}'..='\u{303f}',
    '\u{3100}'..='\u{312f}',
    '\u{31a0}'..='\u{31ef}',
    '\u{3200}'..='\u{4db5}',
    '\u{4e00}'..='\u{9fbb}',
    '\u{f900}'..='\u{fa2d}',
    '\u{fa30}'..='\u{fa6a}',
    '\u{fa70}'..='\u{fad9}',
    '\u{fe10}'..='\u{fe1f}',
    '\u{fe30}'..='\u{fe4f}',
    '\u{ff00}'..='\u{ffef}',
];

fn is_chinese(character: char) -> bool {
    CHINESE.iter().any(|range| range.contains(&character))
}

/// Names of languages by ISO 639, in English and as files are named.
const CHINESE_NAMES: [&str; 12] = ["zh", "zho", "chi", "cmn", "yue", "wuu", "nan", "hak", "lzh", "cn", "chinese", "mandarin"];
const JAPANESE_NAMES: [&str; 4] = ["ja", "jpn", "jp", "japanese"];
const KOREAN_NAMES: [&str; 3] = ["ko", "kor", "korean"];

impl Tokeniser {
    /// The tokeniser that sacreBLEU chooses for a target language: [`Chinese`](Self::Chinese) for Chinese and [`Mteval13a`](Self::Mteval13a) for most others.
    /// For Japanese and Korean sacreBLEU has words of a dictionary (`ja-mecab`, `ko-mecab`), in place of which [`Character`](Self::Character) stands here.
    ///
    /// A language is a code of ISO 639 or a name in English, in any case; script and region may follow after `-` or `_` (`zh_CN`, `zh-Hans`, `jpn_Jpan`).
    /// Text in Latin script (`zh-Latn`) has spaces, whatever the language.
    pub fn of_language(language: &str) -> Self {
        let language = language.to_lowercase();
        let mut parts = language.split(['-', '_']);
        let name = parts.next().unwrap_or_default();
        if parts.any(|part| part == "latn") {
            Self::default()
        } else if CHINESE_NAMES.contains(&name) {
            Self::Chinese
        } else if JAPANESE_NAMES.contains(&name) || KOREAN_NAMES.contains(&name) {
            Self::Character
        } else {
            Self::default()
        }
    }

    /// Whether words are what stands between spaces, less punctuation.
    pub fn cuts_at_spaces(&self) -> bool {
        matches!(self, Self::Mteval13a | Self::International | Self::Whitespace)
    }

    /// The value of the signature's `tok` field.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mteval13a => "13a",
            Self::International => "intl",
            Self::Chinese => "zh",
            Self::Character => "char",
            Self::Whitespace => "none",
        }
    }

    /// The words of `text`; white space at its end is without influence.
    pub fn words(&self, text: &str) -> Vec<String> {
        let text = text.trim_end_matches(is_space);
        let spaced = match self {
            Self::Mteval13a => {
                // The outer spaces let the rules for full stop and comma see both ends of the text. The order of the entities matters: the text
                // "&amp;lt;" becomes "<".
                let mut text = text.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
                for (entity, character) in [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")] {
                    text = text.replace(entity, character);
                }
                rewrite(format!(" {text} "), &MTEVAL_13A)
            }
            Self::International => rewrite(text.to_owned(), &INTERNATIONAL),
            Self::Chinese => {
                let mut spaced = String::with_capacity(3 * text.len());
                for character in text.trim_start_matches(is_space).chars() {
                    if is_chinese(character) {
                        spaced.extend([' ', character, ' ']);
                    } else {
                        spaced.push(character);
                    }
                }
                rewrite(spaced, &MTEVAL_13A)
            }
            Self::Character => return text.chars().filter(|&character| !is_space(character)).map(String::from).collect(),
            Self::Whitespace => text.to_owned(),
        };
        words(&spaced).map(str::to_owned).collect()
    }
}

fn rewrite(mut text: String, rules: &Rewrites) -> String {
    for (pattern, replacement) in rules {
        text = pattern.replace_all(&text, *replacement).into_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_have_the_tokenisers_that_sacrebleu_chooses() {
        let chinese = ["zh", "ZH", "zh_CN", "zh-TW", "zh-Hans", "zh_Hant_HK", "zho", "zho_Hans", "chi", "cmn", "yue_Hant", "cn", "Chinese"];
        for (languages, tokeniser) in [
            (&chinese[..], Tokeniser::Chinese),
            (&["ja", "ja_JP", "jpn", "jpn_Jpan", "jp", "ko", "ko-KR", "kor_Hang", "Korean"], Tokeniser::Character),
            (&["de", "en", "vi", "zha", "zh-Latn", "jav", "kok", "zu", "invented", ""], Tokeniser::Mteval13a),
        ] {
            for language in languages {
                assert_eq!(Tokeniser::of_language(language), tokeniser, "{language}");
            }
        }
    }
}
