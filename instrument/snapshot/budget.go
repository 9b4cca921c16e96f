package snapshot

import "fmt"

const (
	// What is built from a file of any size without question.
	freeBuilt = 64 << 20
	// And beyond, for each byte of the pickle and of the file, whichever allows
	// less. Recordings take about one byte for a byte of the pickle, and gzip
	// makes them some 10 to 40 times smaller.
	builtPerPickle = 8
	builtPerFile   = 256
)

// budget bounds the memory that is taken for what a file holds by the bytes
// that the file has, because a pickle can refer to one value many times, and
// by what this process may use.
type budget struct {
	built     int64 // bytes taken
	allowed   int64 // refreshed by the source as it reads
	limit     int64 // of this process; 0 for none
	limitName string
	pickle    int64 // bytes read of the pickle
	file      int64 // and of the file
}

// read tells the budget how far the pickle and the file have been read.
func (b *budget) read(pickle, file int64) {
	b.pickle, b.file = pickle, file
	b.allowed = freeBuilt + min(pickle*builtPerPickle, file*builtPerFile)
	if b.limit > 0 {
		b.allowed = min(b.allowed, b.limit)
	}
}

// spend counts bytes that were taken.
func (b *budget) spend(bytes int64) { b.built += bytes }

// err says that the budget is exceeded.
func (b *budget) err() error {
	if b.built <= b.allowed {
		return nil
	}
	if b.limit > 0 && b.allowed == b.limit {
		return fmt.Errorf("it takes more memory than the %d MiB that %s leaves for it", b.limit>>20, b.limitName)
	}
	return fmt.Errorf("it builds more than %d bytes out of %d (%d in the file), which a memory snapshot never does", b.allowed, b.pickle, b.file)
}
