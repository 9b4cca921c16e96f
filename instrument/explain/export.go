package explain

import (
	"bufio"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/tidemark-lab/tidemark/instrument/explain/infer"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
)

// stackTexts are the Python frames of a block's stack, the outermost first,
// and what the block's operation was. One that the backward pass made without
// a stack is under the forward line that it belongs to.
func (a *Analysis) stackTexts(b *infer.Block) []string {
	var list []string
	ids := a.snapshot.StackFrames(b.Stack)
	for _, id := range slices.Backward(ids) {
		f := a.snapshot.Frame(id)
		if o := infer.FrameOf(f); o.Origin != infer.Native && o.Marks&infer.MarkModule == 0 {
			list = append(list, infer.LineText(f))
		}
	}
	if len(list) == 0 {
		line, backward := a.lineOf(b)
		if backward {
			list = append(list, "backward pass")
		}
		list = append(list, a.name(line))
	}
	if op := a.name(a.opOf(b)); a.facts(b).Node != 0 || a.facts(b).NativeOp || strings.HasPrefix(op, "backward") {
		list = append(list, op)
	}
	return list
}

// WriteFolded writes what is allocated at the peak as folded stacks, the form
// of flame graph programs: outermost frame first, with semicolons between
// frames, and bytes.
func (a *Analysis) WriteFolded(w io.Writer) error {
	sums := map[string]int64{}
	clean := strings.NewReplacer(";", ",")
	for _, id := range a.h.AliveAt(a.peak) {
		b := &a.h.Blocks[id]
		texts := a.stackTexts(b)
		for i := range texts {
			texts[i] = clean.Replace(show.Quote(texts[i])) // people look at this file, too
		}
		sums[strings.Join(texts, ";")] += b.Bytes
	}
	keys := make([]string, 0, len(sums))
	for k := range sums {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	out := bufio.NewWriter(w)
	for _, k := range keys {
		fmt.Fprintf(out, "%s %d\n", k, sums[k])
	}
	return out.Flush()
}

// Table is a file of WriteCSV.
type Table struct {
	Name  string // of the file, such as "events.csv"
	Write func(io.Writer) error
}

// Tables are the analysis as tables for SQL and spreadsheets: events, blocks,
// lines (what was allocated at the peak) and stacks, joined by their numbers.
// What is not there is an empty cell.
func (a *Analysis) Tables() []Table {
	return []Table{{"events.csv", a.eventTable}, {"blocks.csv", a.blockTable}, {"lines.csv", a.lineTable}, {"stacks.csv", a.stackTable}}
}

// writeTable writes a heading and the rows that rows gives.
func writeTable(w io.Writer, heading string, rows func(row func(cells ...any))) error {
	c := csv.NewWriter(w)
	if err := c.Write(strings.Split(heading, ",")); err != nil {
		return err
	}
	var cells []string
	rows(func(values ...any) {
		cells = cells[:0]
		for _, v := range values {
			switch v := v.(type) {
			case int:
				cells = append(cells, strconv.Itoa(v))
			case int64:
				cells = append(cells, strconv.FormatInt(v, 10))
			case string:
				cells = append(cells, v)
			default:
				cells = append(cells, fmt.Sprint(v))
			}
		}
		c.Write(cells) // Error has what went wrong
	})
	c.Flush()
	return c.Error()
}

func (a *Analysis) eventTable(w io.Writer) error {
	return writeTable(w, "event,time_seconds,action,address,bytes,stream,block,stack,allocated_bytes,reserved_bytes,phase,step", func(row func(...any)) {
		at := -1
		for i := range a.h.Trace {
			for at+1 < len(a.spans) && a.spans[at+1].First <= i {
				at++
			}
			phase, step := infer.None.String(), ""
			if at >= 0 {
				phase = a.spans[at].Hint.String()
				if n := a.spans[at].Step; n >= 0 {
					step = strconv.Itoa(n)
				}
			}
			blockNumber := ""
			if n := a.h.BlockOf[i]; n >= 0 {
				blockNumber = strconv.Itoa(int(n))
			}
			e := &a.h.Trace[i]
			row(i, strconv.FormatFloat(a.seconds(i), 'f', 6, 64), e.Action.String(), strconv.FormatUint(e.Addr, 10), e.Bytes, int(e.Stream),
				blockNumber, int(e.Stack), a.h.Allocated[i], a.h.Reserved[i], phase, step)
		}
	})
}

func (a *Analysis) blockTable(w io.Writer) error {
	return writeTable(w, "block,allocated_at,freed_at,address,bytes,requested_bytes,category,line,in_backward,operation,stack", func(row func(...any)) {
		for i := range a.h.Blocks {
			b := &a.h.Blocks[i]
			made, freed := "", ""
			if b.Alloc >= 0 {
				made = strconv.Itoa(int(b.Alloc))
			}
			if int(b.Free) < len(a.h.Trace) {
				freed = strconv.Itoa(int(b.Free))
			}
			line, backward := a.lineOf(b)
			row(i, made, freed, strconv.FormatUint(b.Addr, 10), b.Bytes, b.Requested, infer.CategoryName(b.Category), a.name(line), backward, a.name(a.opOf(b)), int(b.Stack))
		}
	})
}

func (a *Analysis) lineTable(w io.Writer) error {
	return writeTable(w, "line,in_backward,bytes,requested_bytes,blocks,operation,category", func(row func(...any)) {
		for _, g := range a.group(a.h.AliveAt(a.peak), a.lineOf) {
			row(g.Line, g.Backward, g.Bytes, g.RequestedBytes, g.Blocks, g.Op, g.Category)
		}
	})
}

func (a *Analysis) stackTable(w io.Writer) error {
	return writeTable(w, "stack,depth,file,line,function", func(row func(...any)) {
		for id := range a.snapshot.Stacks() {
			for depth, f := range a.snapshot.Frames(snapshot.StackID(id)) {
				row(id, depth, f.Filename, f.Line, f.Name)
			}
		}
	})
}
