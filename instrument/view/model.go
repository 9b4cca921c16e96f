package view

import (
	"context"
	"errors"
	"fmt"
	"io"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
)

// Options say what the terminal can do. The zero value is a plain one.
type Options struct {
	Colour bool
	// ASCII draws with ASCII characters alone.
	ASCII bool
}

// pane is what stands below the timeline.
type pane int

const (
	treePane pane = iota
	findingsPane
	phasesPane
	helpPane
)

// Model is the state of the viewer. Make one with New.
type Model struct {
	options       Options
	subjects      []*subject
	active        int
	width, height int
	pane          pane

	way    int // in ways
	open   map[string]bool
	at     int    // the chosen row
	wanted string // path of the chosen row, to stay on it when the tree changes
	scroll int    // of the present pane

	mark    *mark // a moment to compare with
	against bool  // compare with the other subject's cursor

	searching   bool
	query, says string

	treeKnown *node
	rowsKnown []row
}

// mark is a moment that was noted.
type mark struct {
	subject int
	event   int64
}

var _ tea.Model = (*Model)(nil)

// New makes a viewer of one subject, or of two to compare. It fails when there
// are none or more, or when one has no events.
func New(o Options, list ...Subject) (*Model, error) {
	if len(list) < 1 || len(list) > 2 {
		return nil, fmt.Errorf("the viewer shows one or two histories, not %d", len(list))
	}
	m := &Model{options: o, width: 80, height: 24, open: map[string]bool{}}
	for _, s := range list {
		if s.History.End <= s.History.First {
			return nil, fmt.Errorf("%s: there are no events to show", s.Name)
		}
		if err := s.History.Check(); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		m.subjects = append(m.subjects, newSubject(s))
	}
	m.against = len(list) == 2
	m.active = len(list) - 1
	m.openHeavy()
	return m, nil
}

// Run shows the viewer on a terminal until its user leaves it or the context
// ends.
func Run(ctx context.Context, m *Model, in io.Reader, out io.Writer) error {
	profile := colorprofile.Ascii
	if m.options.Colour {
		profile = colorprofile.ANSI
	}
	program := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithColorProfile(profile))
	_, err := program.Run()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if errors.Is(err, tea.ErrInterrupted) {
		return context.Canceled
	}
	return err
}

// Init does nothing.
func (m *Model) Init() tea.Cmd { return nil }

// here is the subject whose cursor moves.
func (m *Model) here() *subject { return m.subjects[m.active] }

// now is what is alive at the cursor.
func (m *Model) now() side { return side{m.here().History, m.here().live()} }

// before is what it is compared with, if with anything.
func (m *Model) before() side {
	switch {
	case m.mark != nil:
		h := m.subjects[m.mark.subject].History
		return side{h, aliveAt(h, m.mark.event)}
	case m.against:
		other := m.subjects[1-m.active]
		return side{other.History, other.live()}
	}
	return side{}
}

func (m *Model) compares() bool { return m.mark != nil || m.against }

// changed forgets the tree, and stays on the chosen row as far as it is still
// there.
func (m *Model) changed() {
	m.wanted = m.rows()[m.at].path()
	m.treeKnown, m.rowsKnown = nil, nil
	m.at = min(m.at, len(m.rows())-1)
	for i, r := range m.rows() {
		if r.path() == m.wanted {
			m.at = i
		}
	}
}

// Update takes a key or a size in.
func (m *Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = max(msg.Width, 20), max(msg.Height, 8)
	case tea.KeyPressMsg:
		m.says = ""
		switch {
		case msg.String() == "ctrl+c":
			return m, tea.Interrupt
		case m.searching:
			m.search(msg)
		default:
			return m, m.key(msg.String())
		}
	}
	return m, nil
}

// search takes a key of the search line in.
func (m *Model) search(msg tea.KeyPressMsg) {
	switch msg.String() {
	case "enter":
		m.searching = false
		return
	case "esc":
		m.searching, m.query = false, ""
		return
	case "backspace":
		if r := []rune(m.query); len(r) > 0 {
			m.query = string(r[:len(r)-1])
		}
	default:
		m.query += msg.Text
	}
	if m.query != "" && !matches(m.rows()[m.at].name, m.query) && !m.find(1) {
		m.says = "nothing is called that"
	}
}
