package view

import (
	"cmp"
	"slices"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/report"
)

// way is how the tree of what is alive is divided.
type way struct {
	name string
	path func(h *report.History, l *report.BlockLabel) []string
}

func known(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

var ways = []way{
	{"stack", func(h *report.History, l *report.BlockLabel) []string {
		if l.Stack == 0 {
			return []string{"(no stack)", known(l.Op, "(no operation)")}
		}
		return h.Stacks.Frames(l.Stack)
	}},
	{"line", func(_ *report.History, l *report.BlockLabel) []string {
		return []string{known(l.Line, "(no line)"), known(l.Op, "(no operation)")}
	}},
	{"module", func(_ *report.History, l *report.BlockLabel) []string {
		return append(strings.Split(known(l.Module, "(no module)"), "."), known(l.Op, "(no operation)"))
	}},
	{"category", func(_ *report.History, l *report.BlockLabel) []string {
		return []string{l.Category.String(), known(l.Line, "(no line)"), known(l.Op, "(no operation)")}
	}},
}

// node is a part of what is alive at one moment, or of the difference between
// two: then bytes are those that came, less those that went.
type node struct {
	name          string
	outer         *node
	bytes, before int64 // now, and at the moment that it is compared with
	blocks        int64
	inner         []*node
	byName        map[string]*node
}

// path names a node: its names from the root on.
func (n *node) path() string {
	if n.outer == nil {
		return ""
	}
	return n.outer.path() + "\x00" + n.name
}

func (n *node) add(path []string, now, before, blocks int64) {
	for {
		n.bytes += now
		n.before += before
		n.blocks += blocks
		if len(path) == 0 {
			return
		}
		next := n.byName[path[0]]
		if next == nil {
			next = &node{name: path[0], outer: n}
			if n.byName == nil {
				n.byName = map[string]*node{}
			}
			n.byName[path[0]] = next
			n.inner = append(n.inner, next)
		}
		n, path = next, path[1:]
	}
}

// weight is what a node is ordered by.
func (n *node) weight() int64 {
	if d := n.bytes - n.before; d < 0 {
		return -d
	} else {
		return d
	}
}

func (n *node) sort() {
	slices.SortFunc(n.inner, func(a, b *node) int {
		return cmp.Or(cmp.Compare(b.weight(), a.weight()), cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.name, b.name))
	})
	for _, i := range n.inner {
		i.sort()
	}
}

// side is blocks of a history, one of two to compare.
type side struct {
	h      *report.History
	blocks []int32
}

// newTree divides what is alive; before may have no history.
func newTree(w way, now, before side) *node {
	root := &node{name: "all"}
	for i, s := range []side{now, before} {
		if s.h == nil {
			continue
		}
		bytes, blocks := make([]int64, len(s.h.Labels)), make([]int64, len(s.h.Labels))
		for _, b := range s.blocks {
			bytes[s.h.Blocks[b].Label] += s.h.Blocks[b].Bytes
			blocks[s.h.Blocks[b].Label]++
		}
		for l := range bytes {
			switch path := w.path; {
			case blocks[l] == 0:
			case i == 0:
				root.add(path(s.h, &s.h.Labels[l]), bytes[l], 0, blocks[l])
			default:
				root.add(path(s.h, &s.h.Labels[l]), 0, bytes[l], 0)
			}
		}
	}
	root.sort()
	return root
}

// row is a line of the tree: a node, or a chain of nodes of which each has all
// of what the one around it has.
type row struct {
	*node      // the innermost
	chain  int // how many more nodes it stands for
	depth  int
	opened bool
}

// rows are the lines of a tree, as far as it is open.
func (m *Model) rows() []row {
	if m.rowsKnown != nil {
		return m.rowsKnown
	}
	var list []row
	var walk func(n *node, depth int)
	walk = func(n *node, depth int) {
		chain := 0
		for n.outer != nil && len(n.inner) == 1 {
			n = n.inner[0]
			chain++
		}
		open := m.open[n.path()]
		list = append(list, row{n, chain, depth, open && len(n.inner) > 0})
		if open {
			for _, i := range n.inner {
				walk(i, depth+1)
			}
		}
	}
	walk(m.tree(), 0)
	m.rowsKnown = list
	return list
}

// tree is the tree of what is alive at the cursor.
func (m *Model) tree() *node {
	if m.treeKnown == nil {
		m.treeKnown = newTree(ways[m.way], m.now(), m.before())
		m.rowsKnown = nil
	}
	return m.treeKnown
}

// openHeavy opens the tree down to where the most of it divides.
func (m *Model) openHeavy() {
	for n := m.tree(); ; n = n.inner[0] {
		m.open[n.path()] = true
		if len(n.inner) == 0 || 2*n.inner[0].weight() < n.weight() {
			break
		}
	}
	m.rowsKnown = nil
}

// reveal opens what is around a node and puts the cursor on its row.
func (m *Model) reveal(n *node) {
	for o := n.outer; o != nil; o = o.outer {
		m.open[o.path()] = true
	}
	m.rowsKnown = nil
	m.choose(n)
}

// choose puts the cursor on the row of a node, if there is one.
func (m *Model) choose(n *node) {
	for i, r := range m.rows() {
		for c, at := 0, r.node; c <= r.chain; c, at = c+1, at.outer {
			if at == n {
				m.at = i
				return
			}
		}
	}
}

// find goes to the next node whose name has the words, or the one before.
func (m *Model) find(by int) bool {
	if m.query == "" {
		return false
	}
	var all []*node
	var walk func(n *node)
	walk = func(n *node) {
		all = append(all, n)
		for _, i := range n.inner {
			walk(i)
		}
	}
	walk(m.tree())
	at := slices.Index(all, m.rows()[m.at].node)
	for i := range len(all) {
		n := all[(at+by*(i+1)+2*len(all))%len(all)]
		if matches(n.name, m.query) {
			m.reveal(n)
			return true
		}
	}
	return false
}

func matches(name, query string) bool {
	name = strings.ToLower(name)
	for _, word := range strings.Fields(strings.ToLower(query)) {
		if !strings.Contains(name, word) {
			return false
		}
	}
	return query != ""
}
