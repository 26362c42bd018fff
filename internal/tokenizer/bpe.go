package tokenizer

import (
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"sync"
)

// bpe is byte-level byte pair encoding: a piece starts as single bytes, and the
// pair that stands first in the list of merges is joined until none is left.
type bpe struct {
	start  [256]int32 // ids of the single bytes
	whole  map[string]int32
	pairs  map[uint64]merge
	direct bool // a piece that is a token as a whole is that token (ignore_merges)

	mu    sync.RWMutex
	cache map[string][]int32 // encoded pieces
}

// merge is what a pair of tokens becomes, and its place in the list.
type merge struct{ rank, id int32 }

// Pieces up to maxCachedPiece bytes are remembered, maxCachedPieces of them.
const (
	maxCachedPiece  = 64
	maxCachedPieces = 1 << 16
)

func pair(a, b int32) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }

func newBPE(m model) (*bpe, error) {
	switch {
	case m.Dropout != nil && *m.Dropout != 0:
		return nil, fmt.Errorf("dropout %g is not supported", *m.Dropout)
	case m.Continuation != nil && *m.Continuation != "":
		return nil, fmt.Errorf("continuing_subword_prefix %q is not supported", *m.Continuation)
	case m.EndOfWord != nil && *m.EndOfWord != "":
		return nil, fmt.Errorf("end_of_word_suffix %q is not supported", *m.EndOfWord)
	}
	b := &bpe{
		whole: make(map[string]int32, len(m.Vocab)), pairs: make(map[uint64]merge, len(m.Merges)),
		direct: m.IgnoreMerges, cache: map[string][]int32{},
	}
	for text, id := range m.Vocab {
		if id < 0 || id >= maxID {
			return nil, fmt.Errorf("token %q has id %d", text, id)
		}
		if raw, ok := rawBytes(text); ok {
			b.whole[string(raw)] = int32(id)
		}
	}
	for i := range b.start {
		id, ok := b.whole[string([]byte{byte(i)})]
		if !ok {
			return nil, fmt.Errorf("the vocabulary has no token for byte %#x: it is no byte-level BPE", i)
		}
		b.start[i] = id
	}
	for i, pr := range m.Merges {
		x, okX := m.Vocab[pr[0]]
		y, okY := m.Vocab[pr[1]]
		z, okZ := m.Vocab[pr[0]+pr[1]]
		if !okX || !okY || !okZ {
			return nil, fmt.Errorf("merge %d of %q and %q: one of them, or both together, is not in the vocabulary", i, pr[0], pr[1])
		}
		b.pairs[pair(int32(x), int32(y))] = merge{rank: int32(i), id: int32(z)}
	}
	if len(m.Vocab) == 0 {
		return nil, errors.New("the vocabulary is empty")
	}
	return b, nil
}

// encode appends the ids of one piece to ids.
func (b *bpe) encode(ids []int, piece string) []int {
	if b.direct {
		if id, ok := b.whole[piece]; ok {
			return append(ids, int(id))
		}
	}
	b.mu.RLock()
	tokens, ok := b.cache[piece]
	b.mu.RUnlock()
	if !ok {
		tokens = b.merge(piece)
		if len(piece) <= maxCachedPiece {
			b.mu.Lock()
			if len(b.cache) < maxCachedPieces {
				b.cache[piece] = tokens
			}
			b.mu.Unlock()
		}
	}
	for _, id := range tokens {
		ids = append(ids, int(id))
	}
	return ids
}

// symbol is a token of a piece under way, in a list by place; id is -1 once it
// has been joined to the one before it.
type symbol struct{ id, prev, next int32 }

// candidate is a pair that may be joined: the symbol at, with the one after it.
type candidate struct {
	merge
	at    int32
	right int32 // the id of the symbol after it when the pair was found
	left  int32
}

type queue []candidate

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[i].rank, q[j].rank), cmp.Compare(q[i].at, q[j].at)) < 0
}
func (q *queue) Push(x any) { *q = append(*q, x.(candidate)) }
func (q *queue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}

// merge joins the pair of the lowest rank, the leftmost of equals, until none
// is left: O(n log n) with a heap of candidates, those that a join has made
// stale being passed over when they come up.
func (b *bpe) merge(piece string) []int32 {
	symbols := make([]symbol, len(piece))
	for i := range symbols {
		symbols[i] = symbol{id: b.start[piece[i]], prev: int32(i) - 1, next: int32(i) + 1}
	}
	var q queue
	look := func(at int32) (candidate, bool) {
		if at < 0 || symbols[at].next == int32(len(symbols)) {
			return candidate{}, false
		}
		left, right := symbols[at].id, symbols[symbols[at].next].id
		m, ok := b.pairs[pair(left, right)]
		return candidate{merge: m, at: at, left: left, right: right}, ok
	}
	for i := range symbols {
		if c, ok := look(int32(i)); ok {
			q = append(q, c)
		}
	}
	heap.Init(&q)
	for q.Len() > 0 {
		c := heap.Pop(&q).(candidate)
		s := &symbols[c.at]
		if s.id != c.left || s.next == int32(len(symbols)) || symbols[s.next].id != c.right {
			continue
		}
		gone := &symbols[s.next]
		s.id, s.next = c.id, gone.next
		gone.id = -1
		if s.next < int32(len(symbols)) {
			symbols[s.next].prev = c.at
		}
		for _, at := range []int32{s.prev, c.at} {
			if next, ok := look(at); ok {
				heap.Push(&q, next)
			}
		}
	}
	tokens := make([]int32, 0, len(symbols))
	for i := int32(0); i < int32(len(symbols)); i = symbols[i].next {
		tokens = append(tokens, symbols[i].id)
	}
	return tokens
}
