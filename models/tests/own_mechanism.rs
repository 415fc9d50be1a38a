//! Runs the example of a user's own mechanism.

#[path = "../examples/own_mechanism.rs"]
mod own_mechanism;

#[test]
fn an_own_mechanism_conforms_and_the_example_runs() {
    own_mechanism::main().unwrap();
}

#[test]
fn an_own_mechanism_learns() {
    let losses = own_mechanism::train(60);
    assert!(losses[0] > 1.0 && losses[59] < 0.3, "from {} to {}", losses[0], losses[59]);
}
