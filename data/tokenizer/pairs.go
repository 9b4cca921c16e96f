package tokenizer

import (
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// maxTokens bounds the numbers of tokens.
const maxTokens = 1 << 24

// A cache keeps the tokens of pieces up to keptBytes long, of keptPieces at most.
const (
	keptBytes  = 64
	keptPieces = 1 << 17
)

// pairs is a model of byte-pair encoding: pieces are joined from their characters,
// the pair first that was joined first when the model was made.
type pairs struct {
	ids   map[string]int32
	texts []string // by number; empty where there is none
	ranks map[[2]int32]merge
	// whole takes a piece that is a token as it is, whatever its pairs.
	whole bool
	// unknown is the token of a character that has none; -1 for none, which
	// leaves it out. One stands for a run of them if fuse is set.
	unknown int32
	fuse    bool
	bytes   []int32 // the tokens of the 256 bytes, that stand for such a character; nil without
	kept    map[string][]int32
}

// merge is what a pair becomes, and how early.
type merge struct{ rank, joined int32 }

func readModel(raw json.RawMessage) (*pairs, error) {
	var m struct {
		Type     string           `json:"type"`
		Vocab    json.RawMessage  `json:"vocab"`
		Merges   []mergeText      `json:"merges"`
		Unknown  *string          `json:"unk_token"`
		Fallback bool             `json:"byte_fallback"`
		Fuse     bool             `json:"fuse_unk"`
		Whole    bool             `json:"ignore_merges"`
		Prefix   *string          `json:"continuing_subword_prefix"`
		Suffix   *string          `json:"end_of_word_suffix"`
		Dropout  *json.RawMessage `json:"dropout"`
	}
	if len(raw) == 0 {
		return nil, errors.New("it has no model: this is no tokenizer.json")
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, fmt.Errorf("model: %w", err)
	}
	if m.Type != "BPE" && !(m.Type == "" && m.Merges != nil) {
		return nil, fmt.Errorf("the model %q is not known: BPE is", m.Type)
	}
	for name, s := range map[string]*string{"continuing_subword_prefix": m.Prefix, "end_of_word_suffix": m.Suffix} {
		if s != nil && *s != "" {
			return nil, fmt.Errorf("model: %s %q is not known", name, *s)
		}
	}
	if m.Dropout != nil && string(*m.Dropout) != "0.0" && string(*m.Dropout) != "0" {
		return nil, errors.New("model: dropout of merges is not known")
	}
	p := &pairs{whole: m.Whole, fuse: m.Fuse, unknown: -1, kept: map[string][]int32{}}
	if err := json.Unmarshal(m.Vocab, &p.ids); err != nil {
		return nil, fmt.Errorf("model: vocab: %w", err)
	}
	if err := p.number(); err != nil {
		return nil, err
	}
	if err := p.rank(m.Merges); err != nil {
		return nil, err
	}
	if m.Unknown != nil {
		id, ok := p.ids[*m.Unknown]
		if !ok {
			return nil, fmt.Errorf("model: unk_token %q is not in the vocabulary", *m.Unknown)
		}
		p.unknown = id
	}
	if m.Fallback {
		p.fallback()
	}
	return p, nil
}

// number orders the vocabulary.
func (p *pairs) number() error {
	most := int32(-1)
	for text, id := range p.ids {
		if id < 0 || id >= maxTokens {
			return fmt.Errorf("model: vocab: %q has the number %d", text, id)
		}
		most = max(most, id)
	}
	p.texts = make([]string, most+1)
	for text, id := range p.ids {
		p.texts[id] = text
	}
	return nil
}

// rank takes the merges in their order.
func (p *pairs) rank(merges []mergeText) error {
	p.ranks = make(map[[2]int32]merge, len(merges))
	for i, m := range merges {
		a, okA := p.ids[m[0]]
		b, okB := p.ids[m[1]]
		joined, ok := p.ids[m[0]+m[1]]
		if !okA || !okB || !ok {
			return fmt.Errorf("model: merge %d, %q and %q, is of texts that are not in the vocabulary", i, m[0], m[1])
		}
		if _, twice := p.ranks[[2]int32{a, b}]; !twice {
			p.ranks[[2]int32{a, b}] = merge{int32(i), joined}
		}
	}
	return nil
}

// fallback finds the tokens of bytes, such as <0x0A>; all must be there.
func (p *pairs) fallback() {
	var list []int32
	for i := range 256 {
		id, ok := p.ids[fmt.Sprintf("<0x%02X>", i)]
		if !ok {
			return
		}
		list = append(list, id)
	}
	p.bytes = list
}

// mergeText is a pair, written as a list or, in older files, with a space.
type mergeText [2]string

func (m *mergeText) UnmarshalJSON(b []byte) error {
	var list []string
	if json.Unmarshal(b, &list) == nil {
		if len(list) != 2 {
			return fmt.Errorf("a merge of %d texts, want 2", len(list))
		}
		*m = mergeText(list)
		return nil
	}
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	first, second, ok := strings.Cut(s, " ")
	if !ok {
		return fmt.Errorf("the merge %q is no pair", s)
	}
	*m = mergeText{first, second}
	return nil
}

// encode adds the tokens of a piece.
func (p *pairs) encode(tokens []int32, piece string) []int32 {
	if list, ok := p.kept[piece]; ok {
		return append(tokens, list...)
	}
	if id, ok := p.ids[piece]; ok && p.whole {
		return append(tokens, id)
	}
	list := p.join(p.characters(piece))
	if len(piece) <= keptBytes && len(p.kept) < keptPieces {
		p.kept[piece] = list
	}
	return append(tokens, list...)
}

// characters are a piece's, each a token.
func (p *pairs) characters(piece string) []int32 {
	list := make([]int32, 0, len(piece))
	unknown := false
	for _, r := range piece {
		c := string(r)
		id, ok := p.ids[c]
		switch {
		case ok:
			list = append(list, id)
		case p.bytes != nil:
			for i := range len(c) {
				list = append(list, p.bytes[c[i]])
			}
			ok = true
		case p.unknown >= 0 && !(unknown && p.fuse):
			list = append(list, p.unknown)
		}
		unknown = !ok
	}
	return list
}

// joining is a piece in the making: tokens in a list, of which pairs are joined.
type joining struct {
	tokens       []int32 // -1 for one that was joined to what is before it
	before, next []int
	queue        []candidate
}

// candidate is a pair that can be joined: where it begins, and what it is.
type candidate struct {
	at          int
	left, right int32
	merge
}

func (j *joining) Len() int { return len(j.queue) }
func (j *joining) Less(a, b int) bool {
	x, y := &j.queue[a], &j.queue[b]
	return x.rank < y.rank || x.rank == y.rank && x.at < y.at
}
func (j *joining) Swap(a, b int) { j.queue[a], j.queue[b] = j.queue[b], j.queue[a] }
func (j *joining) Push(x any)    { j.queue = append(j.queue, x.(candidate)) }
func (j *joining) Pop() any {
	x := j.queue[len(j.queue)-1]
	j.queue = j.queue[:len(j.queue)-1]
	return x
}

// join joins pairs as long as there are any, those of the lowest rank first.
func (p *pairs) join(tokens []int32) []int32 {
	n := len(tokens)
	j := &joining{tokens: tokens, before: make([]int, n), next: make([]int, n)}
	offer := func(at int) {
		if at < 0 || j.next[at] >= n {
			return
		}
		left, right := j.tokens[at], j.tokens[j.next[at]]
		if m, ok := p.ranks[[2]int32{left, right}]; ok {
			heap.Push(j, candidate{at, left, right, m})
		}
	}
	for i := range n {
		j.before[i], j.next[i] = i-1, i+1
	}
	for i := range n - 1 {
		offer(i)
	}
	for j.Len() > 0 {
		c := heap.Pop(j).(candidate)
		right := j.next[c.at]
		if j.tokens[c.at] != c.left || right >= n || j.tokens[right] != c.right {
			continue // one of the two was joined to something else
		}
		j.tokens[c.at], j.tokens[right] = c.joined, -1
		j.next[c.at] = j.next[right]
		if j.next[right] < n {
			j.before[j.next[right]] = c.at
		}
		offer(j.before[c.at])
		offer(c.at)
	}
	out := j.tokens[:0]
	for _, t := range j.tokens {
		if t >= 0 {
			out = append(out, t)
		}
	}
	return out
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }
