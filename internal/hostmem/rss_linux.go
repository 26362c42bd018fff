package hostmem

import (
	"bytes"
	"os"
	"strconv"
	"strings"
)

// rssAnon reads RssAnon of /proc/self/status.
func rssAnon() (int64, bool) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("RssAnon:")); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(string(value)), " kB"), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
