import java.io.*;
import java.net.URL;
import java.util.Arrays;

class HttpURLConnection {
    public static void main(String[] arguments) throws Exception {
        // It refuses PATCH unless its field is set by force, as Jersey and others do.
        var method = java.net.HttpURLConnection.class.getDeclaredField("method");
        method.setAccessible(true);
        var in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            var field = line.split("\t", -1);
            for (int n = Integer.parseInt(field[0]); n > 0; n--) {
                var connection = (java.net.HttpURLConnection) new URL(field[2]).openConnection();
                method.set(connection, field[1]);
                for (var header : Arrays.copyOfRange(field, 4, field.length)) {
                    var pair = header.split(": ", 2);
                    connection.setRequestProperty(pair[0], pair[1]);
                }
                if (!field[3].isEmpty()) {
                    connection.setDoOutput(true);
                    connection.getOutputStream().write(field[3].getBytes("UTF-8"));
                }
                int status = connection.getResponseCode();
                var stream = status < 400
                    ? connection.getInputStream() : connection.getErrorStream();
                var body = new String(stream.readAllBytes(), "UTF-8");
                var text = new StringBuilder(status + "\t" + body);
                connection.getHeaderFields().forEach((name, values) -> {
                    if (name != null) // the status line
                        values.forEach(value -> text.append("\t" + name + ": " + value));
                });
                out.println(text);
            }
        }
    }
}
