// Package tidy holds the rules of the repository, as tests.
//
// A rule is a function from the tree of files to sentences about what breaks it. Beside
// every rule stands a test that plants a tree which breaks it, so that no rule can pass
// by looking at nothing. Read tree_test.go for what a rule gets to see, then any other
// file: imports_test.go (who may know whom, what may touch the world), code_test.go
// (sizes, names, comments), layout_test.go (files of the repository as such),
// goldens_test.go (stored events) and docs_test.go (what the documents claim).
package tidy
