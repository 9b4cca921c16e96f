// Package explain says where the memory of a foreign program went: it reads
// the history of a PyTorch snapshot (package snapshot) and attributes every
// block to a line of the user's, infers what it was for and in which phase of
// which step it was made, and finds what is worth changing.
//
// Bytes and moments are the recording's own. Categories, phases and steps are
// inferred, by rules over stacks, sizes, lifetimes and repetition that
// docs/snapshots.md lists; nothing is known of any one model or trainer.
package explain
