package dataset

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"

	"longship/internal/imageio"
)

// maxCaption is the largest caption file, in bytes. Prompts of 512 tokens have
// a few kilobytes; a larger file is something else.
const maxCaption = 1 << 20

// readCaption reads a caption file: UTF-8, or UTF-16 of either order, with or
// without a byte order mark. White space around the text is not part of it. A
// .json file holds an object with caption or caption_short.
func readCaption(path string, isJSON bool) (string, error) {
	f, info, err := imageio.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if info.Size() > maxCaption {
		return "", fmt.Errorf("has %d bytes, more than a caption can have (%d)", info.Size(), maxCaption)
	}
	raw, err := io.ReadAll(f)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(decodeText(raw))
	if strings.ContainsRune(text, 0) {
		return "", fmt.Errorf("is no text: it has characters of value 0")
	}
	if !isJSON || text == "" {
		return text, nil
	}
	var c struct {
		Caption string `json:"caption"`
		Short   string `json:"caption_short"`
	}
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return "", err
	}
	if c.Caption == "" {
		c.Caption = c.Short
	}
	return strings.TrimSpace(c.Caption), nil
}

// decodeText returns text as UTF-8. Bytes that are none become U+FFFD.
func decodeText(b []byte) string {
	order := unicode.LittleEndian
	switch {
	case strings.HasPrefix(string(b), "\xef\xbb\xbf"):
		return strings.ToValidUTF8(string(b[3:]), "\ufffd")
	case strings.HasPrefix(string(b), "\xff\xfe"):
	case strings.HasPrefix(string(b), "\xfe\xff"):
		order = unicode.BigEndian
	default:
		little, big := zeros(b)
		if little == big {
			return strings.ToValidUTF8(string(b), "\ufffd")
		}
		if big > little {
			order = unicode.BigEndian
		}
	}
	// the decoder replaces what is not UTF-16, so it has no errors
	text, _ := unicode.UTF16(order, unicode.UseBOM).NewDecoder().Bytes(b)
	if !utf8.Valid(text) {
		return strings.ToValidUTF8(string(text), "\ufffd")
	}
	return string(text)
}

// zeros counts the zero bytes at odd and at even places. UTF-8 text has none; in
// UTF-16 every character up to U+00FF has one, behind it (little) or before it.
func zeros(b []byte) (little, big int) {
	for i, v := range b {
		if v != 0 {
			continue
		}
		if i%2 == 1 {
			little++
		} else {
			big++
		}
	}
	return little, big
}

// finalCaption applies the default caption and the trigger word.
func (c *Config) finalCaption(text string) string {
	if text == "" {
		text = c.DefaultCaption
	}
	text = strings.NewReplacer("[name]", c.TriggerWord, "[trigger]", c.TriggerWord).Replace(text)
	if !strings.Contains(text, c.TriggerWord) {
		text = c.TriggerWord + " " + text
	}
	return strings.TrimSpace(text)
}
