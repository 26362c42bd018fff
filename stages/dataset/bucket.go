package dataset

import (
	"math"

	"longship/stages/port"
)

// grid is what both sides of a bucket are multiples of: a latent token is 16
// pixels wide.
const grid = 16

// bucketOf returns the size that an image of w x h is trained at: near its own
// aspect, both sides on the grid, and of an area of at most resolution squared.
// An image of less area keeps it.
//
// It is ai-toolkit's rule. The exact size lies between grid lines on each axis;
// of the four corners around it, those within the area count, and the one
// nearest in area to the target is taken, the earlier of
// floor/floor, floor/ceil, ceil/floor, ceil/ceil where two are as near.
func bucketOf(w, h, resolution int) port.Bucket {
	limit := resolution * resolution
	target := min(w*h, limit)
	s := math.Sqrt(float64(target) / float64(w*h))
	a, b := float64(w)*s/grid, float64(h)*s/grid
	across := [2]int{int(math.Floor(a)) * grid, int(math.Ceil(a)) * grid}
	down := [2]int{int(math.Floor(b)) * grid, int(math.Ceil(b)) * grid}
	best, off := port.Bucket{}, math.MaxInt
	for _, x := range across {
		for _, y := range down {
			if area := x * y; x > 0 && y > 0 && area <= limit {
				if d := max(area-target, target-area); d < off {
					best, off = port.Bucket{W: x, H: y}, d
				}
			}
		}
	}
	if off == math.MaxInt { // one side is below a cell
		return port.Bucket{W: max(grid, across[0]), H: max(grid, down[0])}
	}
	return best
}
