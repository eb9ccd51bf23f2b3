package memory

import (
	"testing"
	"time"

	"github.com/evalfleet/evalfleet/pkg/replica"
	"github.com/evalfleet/evalfleet/pkg/replica/replicatest"
)

func TestTable(t *testing.T) {
	t.Parallel()
	replicatest.Run(t, replicatest.Harness{
		New: func(*testing.T) replica.Table { return &Table{} },
		Age: func(_ *testing.T, table replica.Table, process string, by time.Duration) {
			table.(*Table).Age(process, by)
		},
	})
}
