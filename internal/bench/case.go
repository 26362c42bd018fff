package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
)

// Case is one thing to measure.
type Case struct {
	Pixels  int    `json:"pixels"`  // side of the square images
	Rank    int    `json:"rank"`    // of the adapter
	Offload string `json:"offload"` // as prefetch takes it: auto, or a share
	Cap     string `json:"cap"`     // as the head of a pipeline takes it: auto, or a size
}

// String writes the case as ParseCase reads it.
func (c Case) String() string { return fmt.Sprintf("%d:%d:%s:%s", c.Pixels, c.Rank, c.Offload, c.Cap) }

// ParseCase reads PX:RANK:OFFLOAD:CAP, "512:16:auto:23.5GiB". What is left out
// at the end is auto.
func ParseCase(text string) (Case, error) {
	bad := func(what string) (Case, error) {
		return Case{}, fmt.Errorf("case %q: %s; a case is PX:RANK:OFFLOAD:CAP, such as 512:16:auto:23.5GiB", text, what)
	}
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 4 {
		return bad(fmt.Sprintf("%d parts", len(parts)))
	}
	for len(parts) < 4 {
		parts = append(parts, "auto")
	}
	c := Case{Offload: parts[2], Cap: parts[3]}
	var err error
	if c.Pixels, err = strconv.Atoi(parts[0]); err != nil || c.Pixels < 16 || c.Pixels%16 != 0 || c.Pixels > 1<<14 {
		return bad(fmt.Sprintf("%q is not a number of pixels, a multiple of 16", parts[0]))
	}
	if c.Rank, err = strconv.Atoi(parts[1]); err != nil || c.Rank < 1 {
		return bad(fmt.Sprintf("%q is not a rank", parts[1]))
	}
	if c.Offload != "auto" {
		if v, err := strconv.ParseFloat(c.Offload, 64); err != nil || !(v >= 0 && v <= 1) {
			return bad(fmt.Sprintf("offload %q is neither auto nor a share from 0 to 1", c.Offload))
		}
	}
	if c.Cap != "auto" {
		if v, err := humanize.ParseBytes(c.Cap); err != nil || v == 0 || v > math.MaxInt64 {
			return bad(fmt.Sprintf("cap %q is neither auto nor a size", c.Cap))
		}
	}
	return c, nil
}
