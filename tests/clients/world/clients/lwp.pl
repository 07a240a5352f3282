use strict;
use HTTP::Request;
use LWP::UserAgent;

my $agent = LWP::UserAgent->new(keep_alive => 1);
$| = 1;
while (my $line = <STDIN>) {
    chomp $line;
    my ($count, $method, $url, $body, @headers) = split /\t/, $line;
    for (1 .. $count) {
        my @pairs = map { split /: /, $_, 2 } @headers;
        my $response = $agent->request(HTTP::Request->new($method, $url, \@pairs, $body));
        my @received;
        $response->headers->scan(sub { push @received, "$_[0]: $_[1]" });
        print join("\t", $response->code, $response->content, @received), "\n";
    }
}
