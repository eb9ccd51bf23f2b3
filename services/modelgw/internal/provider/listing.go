package provider

import "net/http"

// Lister is a provider whose API lists its models to a key, without a charge.
type Lister interface {
	// Listing returns where; ok is false if the API has no list here.
	Listing() (l Listing, ok bool)
}

// Listing is where an API lists its models.
type Listing struct {
	// URL is the address of the list. What is known of one model is below it, by its name.
	URL string
	// Query is the query of both; empty is none.
	Query string
	// Model is the name of the model in the list; empty if the list says nothing of the models that calls name.
	Model string
	// HTTP makes the request. It follows no redirects.
	HTTP *http.Client
	// Authorize sets the account's credential and headers on a request.
	Authorize func(http.Header)
}
