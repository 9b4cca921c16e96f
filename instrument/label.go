package instrument

import (
	"fmt"

	"github.com/tidemark-lab/tidemark/device/alloc"
)

// Caller is a place in Go source.
type Caller struct {
	File     string
	Line     int
	Function string // such as "scenarios.linearRun"
}

// String is "file:line", or empty for the zero value.
func (c Caller) String() string {
	if c == (Caller{}) {
		return ""
	}
	return fmt.Sprintf("%s:%d", c.File, c.Line)
}

// Label says what a block of memory is for and who asked for it.
type Label struct {
	Category Category
	// Module is the path of the module, such as "model.layers.0.mlp".
	Module string
	// Op is the operation whose result or working memory the block is.
	Op string
	// Caller is where the operation was asked for, if known.
	Caller Caller
}

// untagged is the tag of memory that nobody labelled; its label is the zero
// Label.
const untagged alloc.Tag = 0

// held is what the blocks of one tag hold now, and what they held at the peak.
//
// Copying every tag at each new peak would make a growing run quadratic.
// Instead a tag remembers its state at the peak when it first changes after
// that peak: epoch is the number of the peak for which peakBytes and peakBlocks
// were put aside, and a tag of an older epoch has not changed since the peak.
type held struct {
	bytes, peakBytes   int64
	blocks, peakBlocks int64
	epoch              uint64
	category           Category
}

// Tag gives the number that stands for the label on an allocator's blocks.
// Equal labels get equal numbers. It panics on a category that does not exist.
func (r *Recorder) Tag(l Label) alloc.Tag {
	// A step asks for labels in the order of the step before, and comparing two
	// is several times cheaper than looking one up.
	i := r.turn
	r.turn++
	if i < len(r.turns) && r.labels[r.turns[i]] == l {
		return r.turns[i]
	}
	tag := r.find(l)
	if i < len(r.turns) {
		r.turns[i] = tag
	} else if i < maxTurns {
		r.turns = append(r.turns, tag)
	}
	return tag
}

// maxTurns bounds the tags of a step that are remembered.
const maxTurns = 1 << 16

func (r *Recorder) find(l Label) alloc.Tag {
	if tag, ok := r.tags[l]; ok {
		return tag
	}
	if int(l.Category) >= NumCategories {
		panic(fmt.Sprintf("instrument: no category has number %d", l.Category))
	}
	tag := alloc.Tag(len(r.labels))
	r.tags[l] = tag
	r.labels = append(r.labels, l)
	r.held = append(r.held, held{category: l.Category})
	return tag
}

// Label is the label that a tag stands for: the zero Label for tags that this
// recorder did not give.
func (r *Recorder) Label(tag alloc.Tag) Label {
	return r.labels[r.known(tag)]
}

// known replaces a tag that this recorder did not give by untagged.
func (r *Recorder) known(tag alloc.Tag) alloc.Tag {
	if int64(tag) >= int64(len(r.labels)) {
		return untagged
	}
	return tag
}
