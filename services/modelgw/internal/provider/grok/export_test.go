package grok

import (
	"crypto/x509"
	"errors"

	"google.golang.org/grpc"

	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/xai"
)

// KindTrusting is Kind with servers that these roots verify.
func KindTrusting(c Config, roots *x509.CertPool) (provider.Kind, func() error) {
	return kindWith(c, &connections{roots: roots})
}

// ConnectionTo is a connection to an address, without a key.
func ConnectionTo(address string) (*grpc.ClientConn, error) {
	return (&connections{}).to(provider.DefaultAccount, provider.Access{Endpoint: address})
}

// Output is an answer in the canonical form: of a whole one, and of one that came in these pieces.
func Output(whole *xai.GetChatCompletionResponse, pieces []*xai.GetChatCompletionChunk) (output, collectedOutput *modelv1.ModelOutput, err error) {
	a := &asked{name: "grok-4-fast"}
	c := &collected{asked: a}
	for _, piece := range pieces {
		c.add(piece)
	}
	output, err = a.output(whole)
	collectedOutput, failed := a.output(c.response())
	return output, collectedOutput, errors.Join(err, failed)
}
