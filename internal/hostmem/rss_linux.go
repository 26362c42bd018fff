package hostmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// rssAnon adds up RssAnon and RssShmem of /proc/self/status: memory of the heap
// and of anonymous mappings, private or shared.
func rssAnon() (int64, bool) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	var sum int64
	found := false
	for line := range bytes.Lines(text) {
		key, value, _ := bytes.Cut(line, []byte(":"))
		if k := string(key); k != "RssAnon" && k != "RssShmem" {
			continue
		}
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(value)), " kB"), 10, 64)
		if err != nil {
			return 0, false
		}
		sum += kib << 10
		found = true
	}
	return sum, found
}
