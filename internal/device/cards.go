package device

import (
	"errors"
	"fmt"

	"longship/gpu"
	"longship/internal/forecast"
)

// Seen is a card of this machine that can be used.
type Seen struct {
	Index     int               `json:"index"`
	Name      string            `json:"name"`
	Total     int64             `json:"total_bytes"`
	Free      int64             `json:"free_bytes"`
	Own       int64             `json:"own_bytes"` // of them taken by this process's context and libraries
	Libraries map[string]string `json:"libraries"`
}

// Cards opens every card of the machine in turn and says what it is. Where
// there is none that can be used the error says why.
func Cards() (cards []Seen, why error) {
	for i := 0; ; i++ {
		c, err := look(i)
		if err != nil {
			if len(cards) > 0 {
				err = nil
			}
			return cards, err
		}
		cards = append(cards, c)
	}
}

func look(index int) (Seen, error) {
	dev, err := openCUDA(index)
	if err != nil {
		return Seen{}, err
	}
	info := dev.Info()
	s := Seen{Index: index, Name: info.Name, Total: info.TotalBytes, Libraries: info.Libraries}
	if card, ok := dev.(gpu.MemReporter); ok {
		var m gpu.MemInfo
		if m, err = card.MemInfo(); err == nil {
			s.Total, s.Free, s.Own = m.Total, m.Free, m.Own
		}
	}
	return s, errors.Join(err, dev.Close())
}

// Card returns what a forecast takes of a card of this machine: its memory as
// its driver reports it, and the rates that are known of cards of its name.
func Card(index int) (forecast.Card, error) {
	s, err := look(index)
	if err != nil {
		return forecast.Card{}, err
	}
	c, ok := forecast.CardCalled(s.Name)
	if !ok {
		return c, fmt.Errorf("cuda:%d is a %s, whose rates are not known", index, s.Name)
	}
	c.Name, c.Bytes, c.Own = s.Name, s.Total, s.Own
	return c, nil
}
