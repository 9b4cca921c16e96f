package snapshot

// A value is a pickled value in 8 bytes: its kind in the low bits and a
// number above them, which is an integer, or names a text or object of the
// machine's.
type value uint64

type valueKind uint8

const (
	isNone   valueKind = iota
	isBool             // 0 or 1
	isInt              // of up to 60 bits
	isWide             // index of an integer of 64 bits
	isHuge             // an integer beyond that, which no snapshot has
	isFloat            // index of a float64
	isText             // id of a string or bytes
	isObject           // index of a list, tuple or dict
)

const kindBits = 4

func newValue(k valueKind, n int64) value { return value(n)<<kindBits | value(k) }

func (v value) kind() valueKind { return valueKind(v & (1<<kindBits - 1)) }
func (v value) number() int64   { return int64(v) >> kindBits }

// object is a list, tuple or dict in 8 bytes: its form in the low bits and a
// number above them.
type object uint64

type objectForm uint8

const (
	newList objectForm = iota // an empty list; the number is its offset in the pickle
	newDict                   // an empty dict; likewise
	aList                     // index of a list
	aDict                     // index of a dict
	anEntry                   // a dict that is a trace entry; index of the entry
	aFrame                    // a dict that is a frame; its FrameID
	aStack                    // a list of frames; its StackID
)

func newObject(f objectForm, n int64) object { return object(n)<<kindBits | object(f) }

func (o object) form() objectForm { return objectForm(o & (1<<kindBits - 1)) }
func (o object) number() int64    { return int64(o) >> kindBits }

// list is a list or tuple that is no stack.
type list struct {
	offset int64
	items  []value
}

// dict is a dict that is neither a trace entry nor a frame, keys and values in
// turn. The last of equal keys counts. Keys are texts: others cannot be ones
// that this package looks for.
type dict struct {
	offset int64
	items  []value
}

// get is the value of a key, None if there is none.
func (d *dict) get(key textID) value {
	v, _ := d.lookup(key)
	return v
}

func (d *dict) has(key textID) bool {
	_, ok := d.lookup(key)
	return ok
}

func (d *dict) lookup(key textID) (value, bool) {
	for i := len(d.items) - 2; i >= 0; i -= 2 {
		if d.items[i] == newValue(isText, int64(key)) {
			return d.items[i+1], true
		}
	}
	return newValue(isNone, 0), false
}
