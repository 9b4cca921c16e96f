package snapshots

import (
	"fmt"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/tidemark-lab/tidemark/cmd/tidemark/shell"
	"github.com/tidemark-lab/tidemark/device/alloc"
	"github.com/tidemark-lab/tidemark/instrument/show"
	"github.com/tidemark-lab/tidemark/instrument/snapshot"
	"github.com/tidemark-lab/tidemark/instrument/snapshot/replay"
)

func snapshotReplayCommand() *cli.Command {
	return &cli.Command{
		Name:      "replay",
		Usage:     "run a snapshot's history through the allocator, under its own settings or others",
		ArgsUsage: "FILE",
		Flags: []cli.Flag{
			&cli.Int64Flag{Name: "limit-bytes", Usage: "a cap on reserved bytes, as PyTorch's memory fraction is: expandable segments may pass it by less than a page (default: the cap that the history ran into)"},
			&cli.Int64Flag{Name: "card-bytes", Usage: "the card's memory for this process, which nothing passes (default: the card's that the history ran into)"},
			&cli.StringFlag{Name: "alloc-conf", Usage: "allocator settings as in PYTORCH_CUDA_ALLOC_CONF (default: the file's)"},
			&cli.IntFlag{Name: "device", Usage: "which device's history (default: the first that has memory)"},
			&cli.BoolFlag{Name: "check", Usage: "compare segment events with the file's own; status 3 if they differ"},
			&cli.BoolFlag{Name: "json", Usage: "print JSON instead of text"},
			&cli.BoolFlag{Name: "bytes", Usage: "show exact bytes beside GiB"},
		},
		Action: snapshotReplay,
	}
}

type replayOutput struct {
	File            string       `json:"file"`
	Device          int          `json:"device"`
	Entries         int          `json:"entries"`
	EntriesReplayed int          `json:"entries_replayed"`
	AsRecorded      bool         `json:"as_recorded"` // under the settings of the recording
	Limit           *replayLimit `json:"limit"`       // that the history ran into; null if into none
	LimitBytes      *int64       `json:"limit_bytes"` // the cap in force; null for none
	CardBytes       *int64       `json:"card_bytes"`  // the card's memory in force; null for none
	OutOfMemory     []replayOOM  `json:"out_of_memory"`
	// OutOfMemoryAtMost counts what does not fit if the cap was the most that it
	// can have been; null where that makes no difference.
	OutOfMemoryAtMost *int           `json:"out_of_memory_at_most"`
	Initial           alloc.Stats    `json:"initial"`
	InitialSegments   int            `json:"initial_segments"`
	Final             alloc.Stats    `json:"final"` // with the peaks of all of the history
	Switches          []replaySwitch `json:"settings_switches"`
	PrivatePools      []statPool     `json:"private_pools"`
	SettingsProblem   *string        `json:"settings_problem"` // what of the file's settings cannot be followed
	SegmentEvents     replayEvents   `json:"segment_events"`
	// Recorded is the replay under the recording's settings, to compare with;
	// null if this is it, or if there is none.
	Recorded *replayRecorded `json:"recorded"`
}

type replayLimit struct {
	Kind       string `json:"kind"` // card or cap
	Bytes      int64  `json:"bytes"`
	BelowBytes *int64 `json:"below_bytes"` // of a cap: what it was below
	Entry      int    `json:"entry"`
	text       string
}

type replayOOM struct {
	Entry    int    `json:"entry"`
	Recorded bool   `json:"recorded"` // it ran out when the file was recorded, too
	Error    string `json:"error"`
}

type replaySwitch struct {
	Entry      int  `json:"entry"`
	Expandable bool `json:"expandable_segments"` // from there on
}

type replayEvents struct {
	Recorded   int     `json:"recorded"`
	Replayed   int     `json:"replayed"`
	Difference *string `json:"first_difference"` // null if there is none
}

type replayRecorded struct {
	Final           alloc.Stats `json:"final"`
	SegmentEvents   int         `json:"segment_events"`
	OutOfMemory     int         `json:"out_of_memory"`
	SameAsTheFile   bool        `json:"same_as_the_file"`
	EntriesReplayed int         `json:"entries_replayed"`
}

// replayOptions reads the flags.
func replayOptions(c *cli.Context) (o replay.Options, err error) {
	if c.IsSet("alloc-conf") {
		config, err := alloc.ParseConfig(c.String("alloc-conf"))
		if err != nil {
			return o, fmt.Errorf("--alloc-conf: %w", err)
		}
		o.Config = &config
	}
	for name, to := range map[string]*int64{"limit-bytes": &o.LimitBytes, "card-bytes": &o.CardBytes} {
		if *to = c.Int64(name); *to < 0 {
			return o, fmt.Errorf("--%s %d: it must not be negative", name, *to)
		}
	}
	if c.IsSet("device") {
		device := c.Int("device")
		o.Device = &device
	}
	return o, nil
}

func snapshotReplay(c *cli.Context) error {
	o, err := replayOptions(c)
	if err != nil {
		return err
	}
	s, err := snapshotFile(c)
	if err != nil {
		return err
	}
	r, err := replay.Run(s, o)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Args().First(), err)
	}
	if r.Config.MemoryFraction > 0 && r.Config.LimitBytes == 0 && o.Config != nil {
		return fmt.Errorf("--alloc-conf: per_process_memory_fraction is a part of the card's memory, which this file does not tell; give it as --card-bytes")
	}
	out := newReplayOutput(c.Args().First(), s, r)
	if l := r.Limit; l.Kind == replay.CapLimit && r.Config.LimitBytes == l.Bytes && o.LimitBytes == 0 && len(r.OOMs) > 0 {
		o.LimitBytes = l.BelowBytes - 1
		if most, err := replay.Run(s, o); err == nil {
			n := len(most.OOMs)
			out.OutOfMemoryAtMost = &n
		}
		o.LimitBytes = 0
	}
	if out.AsRecorded = o.Config == nil && o.LimitBytes == 0 && o.CardBytes == 0; !out.AsRecorded {
		// A recording whose own replay fails has nothing to compare with.
		if own, err := replay.Run(s, replay.Options{Device: &r.Device}); err == nil {
			out.Recorded = &replayRecorded{own.Final, len(own.Replayed), len(own.OOMs), own.Difference == nil, own.Entries}
		}
	}
	if c.Bool("json") {
		err = shell.PrintJSON(c.App.Writer, out)
	} else {
		err = printReplay(c.App.Writer, out, c.Bool("bytes"))
	}
	if err == nil && c.Bool("check") && r.Difference != nil {
		return cli.Exit(show.Quote(out.File)+": "+r.Difference.String(), shell.ExitDoesNotHold)
	}
	return err
}

func newReplayOutput(file string, s *snapshot.Snapshot, r *replay.Result) replayOutput {
	out := replayOutput{File: file, Device: r.Device, Entries: len(s.Traces[r.Device]), EntriesReplayed: r.Entries,
		OutOfMemory: []replayOOM{}, Initial: r.Initial, InitialSegments: r.InitialSegments, Final: r.Final,
		Switches: []replaySwitch{}, PrivatePools: []statPool{},
		SegmentEvents: replayEvents{Recorded: len(r.Recorded), Replayed: len(r.Replayed)}}
	if l := r.Limit; l.Kind != replay.NoLimit {
		out.Limit = &replayLimit{Kind: "card", Bytes: l.Bytes, Entry: l.Entry, text: l.String()}
		if l.Kind == replay.CapLimit {
			out.Limit.Kind, out.Limit.BelowBytes = "cap", &l.BelowBytes
		}
	}
	if r.Config.LimitBytes > 0 {
		out.LimitBytes = &r.Config.LimitBytes
	}
	if r.CardBytes > 0 {
		out.CardBytes = &r.CardBytes
	}
	for _, e := range r.OOMs {
		out.OutOfMemory = append(out.OutOfMemory, replayOOM{e.Index, e.Recorded, e.Err.Error()})
	}
	for _, w := range r.Switches {
		out.Switches = append(out.Switches, replaySwitch(w))
	}
	for _, p := range snapshot.PrivatePools(snapshot.SegmentsOf(r.Device, r.Segments, nil)) {
		out.PrivatePools = append(out.PrivatePools, statPool(p))
	}
	if err := s.Settings.Problem(); err != nil {
		text := err.Error()
		out.SettingsProblem = &text
	}
	if r.Difference != nil {
		text := r.Difference.String()
		out.SegmentEvents.Difference = &text
	}
	return out
}

func printReplay(w io.Writer, out replayOutput, exact bool) error {
	fmt.Fprintf(w, "device %d: %d of %d entries replayed\n\n", out.Device, out.EntriesReplayed, out.Entries)
	t := show.Table{Headings: []string{"", ">allocated", ">reserved"}}
	row := func(name string, allocated, reserved int64) {
		t.Add(name, show.Bytes(allocated, exact), show.Bytes(reserved, exact))
	}
	row("before", out.Initial.Allocated.Current, out.Initial.Reserved.Current)
	row("peak", out.Final.Allocated.Peak, out.Final.Reserved.Peak)
	row("final", out.Final.Allocated.Current, out.Final.Reserved.Current)
	if err := t.Write(w); err != nil {
		return err
	}
	f := &out.Final
	fmt.Fprintf(w, "\nrequested peak %s, inactive split %s (peak %s), %d segments, %d retries, %d out of memory\n",
		show.Bytes(f.Requested.Peak, exact), show.Bytes(f.InactiveSplit.Current, exact),
		show.Bytes(f.InactiveSplit.Peak, exact), f.Segments.Current, f.NumAllocRetries, f.NumOOMs)
	printReplayFacts(w, out, exact)
	for _, e := range out.OutOfMemory {
		when := "here only, which ends the replay"
		if e.Recorded {
			when = "as recorded"
		}
		fmt.Fprintf(w, "entry %d (%s): %s\n", e.Entry, when, e.Error)
	}
	if out.OutOfMemoryAtMost != nil {
		fmt.Fprintf(w, "if the cap was the most that it can have been, %d allocations do not fit\n", *out.OutOfMemoryAtMost)
	}
	if !out.AsRecorded {
		return printComparison(w, out, exact)
	}
	same := "the same in the file"
	if out.SegmentEvents.Difference != nil {
		same = *out.SegmentEvents.Difference
	}
	_, err := fmt.Fprintf(w, "%d segment events: %s\n", out.SegmentEvents.Replayed, same)
	return err
}

// printReplayFacts says what a recording was like, and the limits in force.
func printReplayFacts(w io.Writer, out replayOutput, exact bool) {
	if n := out.Initial.Reserved.Current; n > 0 {
		fmt.Fprintf(w, "before the history: %s reserved in %d segments\n", show.Bytes(n, exact), out.InitialSegments)
	}
	for _, p := range out.PrivatePools {
		fmt.Fprintf(w, "private pool %v, kept apart: %s reserved in %d segments at the end\n", p, show.Bytes(p.ReservedBytes, exact), p.Segments)
	}
	for _, s := range out.Switches {
		what := "no longer expandable"
		if s.Expandable {
			what = "expandable"
		}
		followed := ""
		if !out.AsRecorded {
			followed = "; this replay keeps to its own settings"
		}
		fmt.Fprintf(w, "settings were switched when it was recorded: from entry %d on segments are %s%s\n", s.Entry, what, followed)
	}
	if out.SettingsProblem != nil {
		fmt.Fprintf(w, "settings of the recording that this replay does not follow: %s\n", show.Quote(*out.SettingsProblem))
	}
	if out.Limit != nil {
		fmt.Fprintf(w, "limit of the recording: %s\n", out.Limit.text)
	}
	if out.LimitBytes != nil {
		fmt.Fprintf(w, "cap in force: %d bytes, which expandable segments may pass by less than a page\n", *out.LimitBytes)
	}
	if out.CardBytes != nil {
		fmt.Fprintf(w, "card in force: %d bytes, which nothing passes\n", *out.CardBytes)
	}
}

// printComparison sets a replay under other settings beside the recording.
func printComparison(w io.Writer, out replayOutput, exact bool) error {
	if out.Recorded == nil {
		_, err := fmt.Fprint(w, "the recording does not replay under its own settings, so there is nothing to compare with\n")
		return err
	}
	a, b := &out.Recorded.Final, &out.Final
	fmt.Fprintln(w)
	t := show.Table{Headings: []string{"", ">as recorded", ">here", ">difference"}}
	for _, r := range []struct {
		name string
		a, b int64
	}{
		{"peak allocated", a.Allocated.Peak, b.Allocated.Peak},
		{"peak reserved", a.Reserved.Peak, b.Reserved.Peak},
		{"peak inactive split", a.InactiveSplit.Peak, b.InactiveSplit.Peak},
	} {
		sign := "+"
		if r.b < r.a {
			sign = ""
		}
		t.Add(r.name, show.Bytes(r.a, exact), show.Bytes(r.b, exact), sign+show.Bytes(r.b-r.a, exact))
	}
	for _, r := range []struct {
		name string
		a, b int64
	}{
		{"segment events", int64(out.Recorded.SegmentEvents), int64(out.SegmentEvents.Replayed)},
		{"retries", a.NumAllocRetries, b.NumAllocRetries},
		{"out of memory", a.NumOOMs, b.NumOOMs},
		{"entries replayed", int64(out.Recorded.EntriesReplayed), int64(out.EntriesReplayed)},
	} {
		t.Add(r.name, fmt.Sprint(r.a), fmt.Sprint(r.b), fmt.Sprintf("%+d", r.b-r.a))
	}
	return t.Write(w)
}
