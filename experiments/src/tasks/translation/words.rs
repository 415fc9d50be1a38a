//! Whether the words that BLEU counts are words of the target language.

use heedful_data::parallel::ParallelCorpus;
use heedful_metrics::Tokeniser;

/// Most characters for a space where words are written apart: German has about seven, Finnish nine.
const CHARACTERS_FOR_A_SPACE: usize = 20;

/// What a reader of the scores has to know of their words.
pub(super) fn warnings(tokeniser: Tokeniser, corpus: &ParallelCorpus) -> Vec<String> {
    let (language, name) = (&corpus.target_language, tokeniser.name());
    let mut warnings = Vec::new();
    let of_language = Tokeniser::of_language(language);
    if of_language == Tokeniser::Character && tokeniser == of_language {
        warnings.push(format!(
            "BLEU of `{language}` counts characters (tok:{name}): the words that sacreBLEU finds (ja-mecab, ko-mecab) need a dictionary, which is not part \
             of this program; scores compare only with others of tok:{name}; of text that is stored as words, \
             --set bleu.tokeniser=none counts these"
        ));
    }
    let references = || corpus.tests.iter().flat_map(|(_, pairs)| pairs).map(|pair| pair.target.trim());
    let characters: usize = references().map(|text| text.chars().count()).sum();
    let spaces: usize = references().map(|text| text.chars().filter(|character| character.is_whitespace()).count()).sum();
    if tokeniser.cuts_at_spaces() && spaces * CHARACTERS_FOR_A_SPACE < characters {
        let remedy = match of_language {
            Tokeniser::Chinese => "zh",
            _ => "char, or zh for Chinese",
        };
        warnings.push(format!(
            "the references in `{language}` have {spaces} spaces in {characters} characters: BLEU with tok:{name} takes what stands between spaces for \
             a word, so that its scores say little; give --set bleu.tokeniser={remedy}"
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use heedful_data::parallel::Pair;

    use super::*;
    use crate::tasks::prelude::*;
    use crate::tasks::testing;
    use crate::tasks::translation::{Translation, TranslationConfig};

    fn settings(given: &[&str]) -> Settings<TranslationConfig> {
        testing::settings::<Translation>(None, given)
    }

    #[test]
    fn bleu_has_the_tokeniser_of_the_target_language_unless_another_is_given() {
        let tokeniser = |given: &[&str]| settings(given).value.own.bleu.tokeniser;
        assert_eq!(tokeniser(&["run.data=x", "data.target=zh_CN"]), Tokeniser::Chinese);
        assert_eq!(tokeniser(&["run.data=x", "data.target=ja"]), Tokeniser::Character);
        assert_eq!(tokeniser(&["run.data=x", "data.target=zh", "bleu.tokeniser=13a"]), Tokeniser::Mteval13a);
        assert_eq!(tokeniser(&["run.data=x", "data.target=ja", "bleu.tokeniser=none"]), Tokeniser::Whitespace);
        assert_eq!(tokeniser(&["run.data=x", "data.source=zh", "data.target=en"]), Tokeniser::Mteval13a);
    }

    #[test]
    fn a_model_by_name_keeps_the_tokeniser_of_the_target_language() {
        let settings = settings(&["run.data=x", "data.target=zh"]);
        assert_eq!(settings.over("model = { layers = 7 }").unwrap().value.own.bleu.tokeniser, Tokeniser::Chinese);
        assert_eq!(settings.over("").unwrap().value, settings.value);
    }

    #[test]
    fn recipes_of_languages_with_spaces_are_what_they_were() {
        assert!(Translation::beneath(&settings(&["run.data=x", "data.target=de"]).value).unwrap().is_none());
        assert!(Translation::beneath(&settings(&[]).value).unwrap().is_none());
    }

    fn of(language: &str, tokeniser: Tokeniser, references: &[&str]) -> String {
        let pairs = references.iter().map(|text| Pair { source: String::new(), target: (*text).to_owned() }).collect();
        let corpus = ParallelCorpus {
            source_language: "en".to_owned(),
            target_language: language.to_owned(),
            train: Vec::new(),
            valid: Vec::new(),
            tests: vec![("test".to_owned(), pairs)],
            skipped: Vec::new(),
            sha256: String::new(),
        };
        warnings(tokeniser, &corpus).join("; ")
    }

    #[test]
    fn text_without_spaces_and_characters_in_place_of_words_are_warned_of() {
        let chinese = ["狗在山上看见了马。", "牛在商店看见了马。"];
        let warning = of("zh", Tokeniser::Mteval13a, &chinese);
        assert!(warning.contains("0 spaces in 18 characters") && warning.ends_with("bleu.tokeniser=zh"), "{warning}");
        let thai = of("th", Tokeniser::default(), &["สุนัขเห็นม้าบนภูเขา แล้วก็วิ่งหนีไปที่แม่น้ำ"]);
        assert!(thai.contains("1 spaces") && thai.contains("=char"), "{thai}");
        let japanese = of("ja", Tokeniser::Character, &["犬は山で馬を見た。"]);
        assert!(japanese.contains("tok:char") && japanese.contains("ja-mecab") && !japanese.contains("spaces in"), "{japanese}");
        for (language, tokeniser, text) in [
            ("zh", Tokeniser::Chinese, "狗在山上看见了马。"),
            ("ja", Tokeniser::Whitespace, "自分 の 事 を しろ 。"),
            ("de", Tokeniser::Mteval13a, "Die Donaudampfschifffahrtsgesellschaft legt an."),
            ("de", Tokeniser::Character, "Donaudampfschifffahrtsgesellschaftskapitän"),
        ] {
            assert_eq!(of(language, tokeniser, &[text]), "", "{language}");
        }
    }
}
