// Package view shows the history of a device's memory in a terminal: its
// timeline with a cursor, what is alive there as a tree, phases and findings,
// and two moments or two files against each other.
package view
