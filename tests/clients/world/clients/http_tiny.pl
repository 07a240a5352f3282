use strict;
use HTTP::Tiny;

my $http = HTTP::Tiny->new;
$| = 1;
while (my $line = <STDIN>) {
    chomp $line;
    my ($count, $method, $url, $body, @headers) = split /\t/, $line;
    for (1 .. $count) {
        my %sent = map { split /: /, $_, 2 } @headers;
        my $response = $http->request($method, $url, { headers => \%sent, content => $body });
        my @received;
        while (my ($name, $values) = each %{$response->{headers}}) {
            push @received, map "$name: $_", ref $values ? @$values : $values;
        }
        print join("\t", $response->{status}, $response->{content}, @received), "\n";
    }
}
