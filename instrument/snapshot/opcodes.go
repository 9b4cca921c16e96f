package snapshot

// Pickle opcodes, as Python's pickletools names them.
const (
	opMark            = '('
	opStop            = '.'
	opPop             = '0'
	opPopMark         = '1'
	opDup             = '2'
	opBinInt          = 'J'
	opBinInt1         = 'K'
	opBinInt2         = 'M'
	opNone            = 'N'
	opBinFloat        = 'G'
	opBinString       = 'T'
	opShortBinString  = 'U'
	opBinUnicode      = 'X'
	opBinBytes        = 'B'
	opShortBinBytes   = 'C'
	opAppend          = 'a'
	opAppends         = 'e'
	opList            = 'l'
	opEmptyList       = ']'
	opTuple           = 't'
	opEmptyTuple      = ')'
	opDict            = 'd'
	opEmptyDict       = '}'
	opSetItem         = 's'
	opSetItems        = 'u'
	opBinGet          = 'h'
	opLongBinGet      = 'j'
	opBinPut          = 'q'
	opLongBinPut      = 'r'
	opProto           = 0x80
	opTuple1          = 0x85
	opTuple2          = 0x86
	opTuple3          = 0x87
	opNewTrue         = 0x88
	opNewFalse        = 0x89
	opLong1           = 0x8a
	opLong4           = 0x8b
	opShortBinUnicode = 0x8c
	opBinUnicode8     = 0x8d
	opBinBytes8       = 0x8e
	opMemoize         = 0x94
	opFrame           = 0x95
	opByteArray8      = 0x96

	opGlobal      = 'c'
	opInst        = 'i'
	opStackGlobal = 0x93
)

// refused are opcodes that make objects by calling what the pickle names, or
// refer to things outside it.
var refused = map[byte]string{'R': "REDUCE", 'b': "BUILD", 'o': "OBJ", 'P': "PERSID", 'Q': "BINPERSID",
	0x81: "NEWOBJ", 0x92: "NEWOBJ_EX", 0x82: "EXT1", 0x83: "EXT2", 0x84: "EXT4",
	0x97: "NEXT_BUFFER", 0x98: "READONLY_BUFFER"}
