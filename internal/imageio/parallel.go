package imageio

import (
	"runtime"
	"sync"
)

// minWork is how many bytes are worth a goroutine.
const minWork = 64 << 10

// parallelRows calls f on runs of rows that cover [0, n), one run a core. Rows
// are perRow bytes of work; where that is little, all of it runs here.
func parallelRows(n, perRow int, f func(y0, y1 int)) {
	parts := min(runtime.GOMAXPROCS(0), n, 1+n*perRow/minWork)
	if parts <= 1 {
		f(0, n)
		return
	}
	var wg sync.WaitGroup
	for p := range parts {
		wg.Go(func() { f(n*p/parts, n*(p+1)/parts) })
	}
	wg.Wait()
}
