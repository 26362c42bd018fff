package bus

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs Watermill's own suite.
func TestConformance(t *testing.T) {
	b := New(hclog.NewNullLogger())
	group := func(t *testing.T, name string) (message.Publisher, message.Subscriber) {
		pub, err := b.Publisher()
		if err != nil {
			t.Fatal(err)
		}
		sub, err := b.Subscriber(name)
		if err != nil {
			t.Fatal(err)
		}
		return pub, sub
	}
	t.Run("suite", func(t *testing.T) {
		tests.TestPubSub(t, tests.Features{
			ConsumerGroups:  true,
			GuaranteedOrder: true,
			Persistent:      true,
		}, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "default") }, group)
	})
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
