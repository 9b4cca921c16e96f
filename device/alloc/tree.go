package alloc

// tree is the ordered set of a pool's free blocks: a treap whose links lie in
// the blocks themselves, so that it allocates nothing. A block must not change
// stream, size or order while it is in the set.
type tree struct{ root *Block }

// less orders by stream, then size, then order.
func less(a, b *Block) bool {
	if a.stream != b.stream {
		return a.stream < b.stream
	}
	if a.size != b.size {
		return a.size < b.size
	}
	return a.order < b.order
}

func (t *tree) insert(b *Block) {
	p := &t.root
	for *p != nil && (*p).priority >= b.priority {
		if less(b, *p) {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	// b takes the place of *p, whose subtree is split around b.
	l, r, n := &b.left, &b.right, *p
	for n != nil {
		if less(n, b) {
			*l, l, n = n, &n.right, n.right
		} else {
			*r, r, n = n, &n.left, n.left
		}
	}
	*l, *r = nil, nil
	*p = b
}

func (t *tree) remove(b *Block) {
	p := &t.root
	for *p != b {
		if *p == nil {
			panic("alloc: free block is not in its pool")
		}
		if less(b, *p) {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	l, r := b.left, b.right
	for l != nil && r != nil {
		if l.priority >= r.priority {
			*p, p, l = l, &l.right, l.right
		} else {
			*p, p, r = r, &r.left, r.left
		}
	}
	if l != nil {
		*p = l
	} else {
		*p = r
	}
	b.left, b.right = nil, nil
}

// atLeast is the first block on stream of size bytes or more; nil if none.
func (t *tree) atLeast(stream int, bytes int64) *Block {
	var best *Block
	for n := t.root; n != nil; {
		if n.stream < stream || n.stream == stream && n.size < bytes {
			n = n.right
		} else {
			best, n = n, n.left
		}
	}
	if best != nil && best.stream != stream {
		return nil
	}
	return best
}

// largest is the last block on stream; nil if none.
func (t *tree) largest(stream int) *Block {
	var best *Block
	for n := t.root; n != nil; {
		if n.stream <= stream {
			best, n = n, n.right
		} else {
			n = n.left
		}
	}
	if best != nil && best.stream != stream {
		return nil
	}
	return best
}

// first is the least block of all streams.
func (t *tree) first() *Block {
	n := t.root
	for n != nil && n.left != nil {
		n = n.left
	}
	return n
}

// after is the block that follows b, which may have left the set.
func (t *tree) after(b *Block) *Block {
	var best *Block
	for n := t.root; n != nil; {
		if less(b, n) {
			best, n = n, n.left
		} else {
			n = n.right
		}
	}
	return best
}

// before is the block that comes before b, which may have left the set.
func (t *tree) before(b *Block) *Block {
	var best *Block
	for n := t.root; n != nil; {
		if less(n, b) {
			best, n = n, n.right
		} else {
			n = n.left
		}
	}
	return best
}
