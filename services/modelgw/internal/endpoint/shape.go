package endpoint

import (
	"github.com/evalfleet/evalfleet/pkg/dialect"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/seal"
)

// shape is how the answer of a model becomes the client's.
type shape interface {
	// delta returns a piece as the client gets it; one without content keeps the connection alive.
	delta(*modelv1.GenerateDelta) *modelv1.GenerateDelta
	// end returns the whole, after its pieces, or why the client gets none.
	end(*modelv1.ModelOutput) (*modelv1.ModelOutput, error)
	// body appends the whole, as end returned it.
	body(dst []byte, output *modelv1.ModelOutput, about dialect.ResponseMeta) ([]byte, error)
}

// answered is the shape of an answer.
type answered struct {
	*format
	sealed seal.Stream
}

func (s *answered) delta(d *modelv1.GenerateDelta) *modelv1.GenerateDelta { return s.sealed.Delta(d) }

func (s *answered) end(output *modelv1.ModelOutput) (*modelv1.ModelOutput, error) {
	return s.sealed.End(output), nil
}

func (s *answered) body(dst []byte, output *modelv1.ModelOutput, about dialect.ResponseMeta) ([]byte, error) {
	return s.AppendResponse(dst, output, about)
}
