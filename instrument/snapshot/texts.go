package snapshot

// textID names a string of a pickle. Equal strings have one textID.
type textID uint32

// The keys that this package looks for have these ids in every pickle.
const (
	keyNone textID = iota // the empty string
	keyAction
	keyAddr
	keySize
	keyStream
	keyTime
	keyFrames
	keyDeviceFree
	keyCategory
	keyCompileContext
	keyUserMetadata
	keyUserDefined
	keyPoolID
	keySegmentPoolID
	keyFilename
	keyLine
	keyName
	keyNA
	keyActions // of action 0; the others follow
)

var keyNames = [...]string{keyNone: "", keyAction: "action", keyAddr: "addr", keySize: "size", keyStream: "stream",
	keyTime: "time_us", keyFrames: "frames", keyDeviceFree: "device_free", keyCategory: "category",
	keyCompileContext: "compile_context", keyUserMetadata: "user_metadata", keyUserDefined: "user_defined",
	keyPoolID: "pool_id", keySegmentPoolID: "segment_pool_id", keyFilename: "filename", keyLine: "line",
	keyName: "name", keyNA: "N/A"}

// textTable keeps the strings of a pickle once each.
type textTable struct {
	list   []string
	ids    map[string]textID
	budget *budget
}

func newTextTable(b *budget) *textTable {
	t := &textTable{ids: map[string]textID{}, budget: b}
	for _, name := range keyNames {
		t.add(name)
	}
	for _, name := range actionNames {
		t.add(name)
	}
	return t
}

// id is that of a string, which is added if it is new.
func (t *textTable) id(s []byte) textID {
	if id, ok := t.ids[string(s)]; ok {
		return id
	}
	return t.add(string(s))
}

func (t *textTable) add(s string) textID {
	const overhead = 80 // of a map's entry, with its room to grow
	t.budget.spend(int64(len(s)) + overhead)
	id := textID(len(t.list))
	t.list = append(t.list, s)
	t.ids[s] = id
	return id
}

// key is the id of a string, which may be one that no pickle had yet.
func (t *textTable) key(s string) textID {
	if id, ok := t.ids[s]; ok {
		return id
	}
	return t.add(s)
}
