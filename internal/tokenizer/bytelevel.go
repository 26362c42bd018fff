package tokenizer

// Byte-level BPE writes every byte as a printable character (GPT-2's table):
// bytes 33-126, 161-172 and 174-255 as the character of that number, the others
// as 256, 257, … in order.

var byteRune = func() (table [256]rune) {
	next := rune(256)
	for b := range table {
		switch {
		case b >= 33 && b <= 126, b >= 161 && b <= 172, b >= 174:
			table[b] = rune(b)
		default:
			table[b] = next
			next++
		}
	}
	return
}()

// runeByte is the way back; -1 for characters that stand for no byte.
var runeByte = func() (table [256 + 68]int16) {
	for r := range table {
		table[r] = -1
	}
	for b, r := range byteRune {
		table[r] = int16(b)
	}
	return
}()

// rawBytes returns the bytes that a token's characters stand for; false where
// one stands for none.
func rawBytes(token string) ([]byte, bool) {
	raw := make([]byte, 0, len(token))
	for _, r := range token {
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return nil, false
		}
		raw = append(raw, byte(runeByte[r]))
	}
	return raw, true
}
