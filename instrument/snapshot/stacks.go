package snapshot

import "math/rand/v2"

// StackID names a stack of a Snapshot. 0 is none: the stack without frames.
// Equal stacks have one StackID.
type StackID uint32

// FrameID names a frame of a Snapshot, counting from 0. Equal frames have one
// FrameID.
type FrameID uint32

// NoteID names a Note of a Snapshot. 0 is the empty Note.
type NoteID uint32

// Note is what a trace entry says beside figures and stack. Few of a history's
// entries differ in it.
type Note struct {
	Category       string
	CompileContext string // empty for N/A
	UserMetadata   string
	Pool           PoolID
}

// SharingStacks returns an empty snapshot with the stacks and notes of s, which
// its entries may name.
func (s *Snapshot) SharingStacks() *Snapshot { return &Snapshot{stacks: s.stacks, notes: s.notes} }

// Stacks is the number of StackIDs in use: they run from 0, the stack without
// frames, to Stacks()-1.
func (s *Snapshot) Stacks() int { return len(s.stacks.ends) + 1 }

// Frames lists a stack's frames, innermost first. The slice is the caller's;
// an id that is not in use gives none.
func (s *Snapshot) Frames(id StackID) []Frame {
	ids := s.StackFrames(id)
	if len(ids) == 0 {
		return nil
	}
	frames := make([]Frame, len(ids))
	for i, f := range ids {
		frames[i] = s.stacks.frames[f]
	}
	return frames
}

// StackFrames lists a stack's frames by id, innermost first. The slice must
// not be changed.
func (s *Snapshot) StackFrames(id StackID) []FrameID { return s.stacks.stack(id) }

// FrameCount is the number of FrameIDs in use.
func (s *Snapshot) FrameCount() int { return len(s.stacks.frames) }

// Frame is the frame that id names, which must be in use.
func (s *Snapshot) Frame(id FrameID) Frame { return s.stacks.frames[id] }

// AddStack returns the id of a stack of frames, innermost first, which is a
// new one if no equal stack was added before.
func (s *Snapshot) AddStack(frames []Frame) StackID {
	ids := make([]FrameID, len(frames))
	for i, f := range frames {
		ids[i] = s.stacks.frame(f)
	}
	return s.stacks.add(ids)
}

// Note is the note that id names; the empty one if id is not in use.
func (s *Snapshot) Note(id NoteID) Note {
	if id == 0 || int(id) > len(s.notes.list) {
		return Note{}
	}
	return s.notes.list[id-1]
}

// Notes is the number of NoteIDs in use: they run from 0, the empty note, to
// Notes()-1.
func (s *Snapshot) Notes() int { return len(s.notes.list) + 1 }

// AddNote returns the id of a note, which is a new one if no equal note was
// added before.
func (s *Snapshot) AddNote(n Note) NoteID { return s.notes.add(n) }

// stackTable keeps frames and stacks once each.
type stackTable struct {
	frames   []Frame
	frameIDs map[Frame]FrameID
	flat     []FrameID // the stacks' frames, one stack after another
	ends     []int     // in flat, of the stacks from 1
	slots    []StackID // a hash table of stacks, 0 where free; a power of two long
	seed     uint64    // so that no file can be made to collide
}

func (t *stackTable) frame(f Frame) FrameID {
	if id, ok := t.frameIDs[f]; ok {
		return id
	}
	if t.frameIDs == nil {
		t.frameIDs = map[Frame]FrameID{}
	}
	id := FrameID(len(t.frames))
	t.frames = append(t.frames, f)
	t.frameIDs[f] = id
	return id
}

func (t *stackTable) stack(id StackID) []FrameID {
	if id == 0 || int(id) > len(t.ends) {
		return nil
	}
	start := 0
	if id > 1 {
		start = t.ends[id-2]
	}
	return t.flat[start:t.ends[id-1]:t.ends[id-1]]
}

// add returns the id of a stack, whose frames it copies if they are new.
func (t *stackTable) add(frames []FrameID) StackID {
	if len(frames) == 0 {
		return 0
	}
	if 4*len(t.ends) >= 3*len(t.slots) {
		t.grow()
	}
	mask := len(t.slots) - 1
	at := int(t.hash(frames)) & mask
	for ; t.slots[at] != 0; at = (at + 1) & mask {
		if equalStacks(t.stack(t.slots[at]), frames) {
			return t.slots[at]
		}
	}
	t.flat = append(t.flat, frames...)
	t.ends = append(t.ends, len(t.flat))
	t.slots[at] = StackID(len(t.ends))
	return t.slots[at]
}

func (t *stackTable) grow() {
	if t.slots == nil {
		t.seed = rand.Uint64()
	}
	t.slots = make([]StackID, max(64, 2*len(t.slots)))
	mask := len(t.slots) - 1
	for i := range t.ends {
		id := StackID(i + 1)
		at := int(t.hash(t.stack(id))) & mask
		for t.slots[at] != 0 {
			at = (at + 1) & mask
		}
		t.slots[at] = id
	}
}

func equalStacks(a, b []FrameID) bool {
	if len(a) != len(b) {
		return false
	}
	for i, f := range a {
		if f != b[i] {
			return false
		}
	}
	return true
}

func (t *stackTable) hash(frames []FrameID) uint64 {
	h := t.seed
	for _, f := range frames {
		h = (h ^ uint64(f)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h ^ h>>32
}

// noteTable keeps notes once each; the empty one is not in it.
type noteTable struct {
	list []Note
	ids  map[Note]NoteID
}

func (t *noteTable) add(n Note) NoteID {
	if n == (Note{}) {
		return 0
	}
	if id, ok := t.ids[n]; ok {
		return id
	}
	if t.ids == nil {
		t.ids = map[Note]NoteID{}
	}
	t.list = append(t.list, n)
	t.ids[n] = NoteID(len(t.list))
	return t.ids[n]
}
