//! The pictures in the documentation are those of the mechanisms as they are.

use heedful_attention::description::AnyMechanism;

// The test draws with the functions of the example that writes the pictures; the example's `main` is not called here.
#[path = "../../examples/pictures.rs"]
#[allow(dead_code, reason = "an example has a main function")]
mod example;

/// How many strokes a picture has.
fn strokes(picture: &str) -> usize {
    picture.matches('M').count()
}

#[test]
fn every_mechanism_has_its_picture() {
    for config in AnyMechanism::all() {
        let path = format!("{}/pictures/{}", env!("CARGO_MANIFEST_DIR"), example::file_name(&config));
        let kept = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}; run the example `pictures`"));
        let drawn = example::picture(&config).unwrap();
        assert_eq!(kept.lines().take(2).collect::<Vec<_>>(), drawn.lines().take(2).collect::<Vec<_>>(), "{path}");
        // Other processors round otherwise, which moves a few cells by a level and no more.
        let (kept, drawn) = (strokes(&kept), strokes(&drawn));
        assert!(kept.abs_diff(drawn) * 20 <= kept, "{path} has {kept} strokes instead of {drawn}; run the example `pictures`");
    }
}
