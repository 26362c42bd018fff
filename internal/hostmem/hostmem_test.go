package hostmem

import (
	"runtime"
	"testing"
)

func TestAnonymousFollowsTheHeap(t *testing.T) {
	const block = 64 << 20
	before := Release()
	b := make([]byte, block)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	held := Anonymous() - before
	runtime.KeepAlive(b)
	b = nil
	after := Release() - before
	if held < block*9/10 || after > block/4 {
		t.Errorf("%d bytes held show as %d, and as %d once released", block, held, after)
	}
}
